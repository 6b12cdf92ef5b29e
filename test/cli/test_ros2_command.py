# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""`ros2 intradp`, by the interface that extensions of ros2cli have; and `intradp status`."""
from __future__ import annotations

import argparse
from configparser import ConfigParser
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest

from intradp_ros.cli.main import COMMANDS
from intradp_ros.report.view.kinds import known

ROOT = Path(__file__).parents[2]


def ros2(arguments: list[str]) -> Any:
    """Do what ros2cli does with an extension of the group ros2cli.command."""
    (point,) = metadata.entry_points(group='ros2cli.command', name='intradp')
    extension = point.load()()
    parser = argparse.ArgumentParser(prog='ros2')
    under = parser.add_subparsers(dest='_command').add_parser(
        'intradp', formatter_class=argparse.RawDescriptionHelpFormatter)
    under.set_defaults(_command=extension)
    extension.add_arguments(under, 'ros2 intradp')
    args = parser.parse_args(['intradp', *arguments])
    return args._command.main(parser=parser, args=args)


def test_the_extension_has_what_ros2cli_asks_for() -> None:
    (point,) = metadata.entry_points(group='ros2cli.command', name='intradp')
    kind = point.load()
    assert kind.EXTENSION_POINT_VERSION == '0.1' and kind.__doc__
    written = ConfigParser()
    written.read(ROOT / 'cmake' / 'entry_points.txt')
    assert written['ros2cli.command']['intradp'] == point.value  # colcon's and pip's are one


def test_arguments_go_to_the_command(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as refused:
        ros2(['bench', 'paper', '--no-such-option'])
    assert refused.value.code == 2 and '--no-such-option' in capsys.readouterr().err
    with pytest.raises(SystemExit) as ended:
        ros2(['--help'])
    assert ended.value.code == 0
    said = capsys.readouterr().out
    assert all(f'  {name} ' in said for name in COMMANDS)


def test_a_command_runs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert ros2(['key', str(tmp_path / 'key')]) == 0
    assert (tmp_path / 'key').is_file()
    assert ros2(['model', 'show', str(tmp_path / 'none.graph')]) == 2
    assert 'no such file' in capsys.readouterr().err


def test_nodes_are_known_by_what_they_say() -> None:
    status = {
        '/inference_node': {'well': True, 'message': 'sharing', 'values': {
            'mode': 'shared', 'inferences': '7', 'other': 'x'}},
        '/camera': {'well': True, 'message': '', 'values': {'temperature': '40'}},
        '/offload_node': {'well': False, 'message': 'rejects', 'values': {'sessions': '1'}}}
    found = known(status)
    assert [(name, node['kind'], node['well']) for name, node in found.items()] == [
        ('/inference_node', 'robot', True), ('/offload_node', 'server', False)]
    assert found['/inference_node']['figures'] == {'mode': 'shared', 'inferences': '7'}
