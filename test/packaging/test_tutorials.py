# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""
The tutorials do what they say: `terminals.py` does each block as it is printed.

`test_documented_commands.py` parses those of other documents.
"""
from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
import re
from typing import Any

import pytest
from terminals import blocks, reader
import yaml

from intradp_ros.cluster.fleet_file import read_fleet
from intradp_ros.systems.serving.service import parse_services

ROOT = Path(__file__).parents[2]
TUTORIALS = sorted((ROOT / 'doc' / 'tutorials').glob('*.md'))
NODES = ROOT / 'intradp_ros' / 'nodes'


def unknown_parameters(content: dict[str, Any]) -> list[str]:
    """Return the nodes and parameters of a parameter file that no node has."""
    nodes = {path.stem: path.read_text() for path in NODES.rglob('*.py')}
    known = '\n'.join(nodes.values())
    wrong = []
    for section, values in content.items():
        name = section.rpartition('/')[2]
        if name != '**' and name not in nodes:
            wrong.append(name)
        wrong += [key for key in values['ros__parameters'] if f"'{key}'" not in known]
    return wrong


@pytest.mark.slow
@pytest.mark.parametrize('document', TUTORIALS, ids=lambda path: path.stem)
def test_a_tutorial_runs(document: Path, tmp_path: Path) -> None:
    """Blocks with a language, on any machine; those without one where `launch` is."""
    with_ros = find_spec('launch_ros') is not None
    with reader(tmp_path) as person:
        if with_ros:
            person.start_cameras(*sorted({*re.findall(
                r'image_topic:=(/\S+)', document.read_text())}))
        for language, block, file in blocks(document):
            if language or with_ros:
                person.do(language, block, file)


@pytest.mark.slow
def test_the_readme_runs(tmp_path: Path) -> None:
    """In a clone that is installed, which its first block and that of a workspace do."""
    with_ros = find_spec('launch_ros') is not None
    with reader(tmp_path) as person:
        (person.folder / 'config').symlink_to(ROOT / 'config')
        if with_ros:
            person.start_cameras('/camera/image_raw')
        for language, block, file in blocks(ROOT / 'README.md'):
            if 'git clone' not in block and ('ros2 ' not in block or with_ros):
                person.do(language, block, file)


@pytest.mark.parametrize('document', TUTORIALS, ids=lambda path: path.stem)
def test_files_of_a_tutorial_can_be_read(document: Path, tmp_path: Path) -> None:
    for language, block, file in blocks(document):
        if language == 'yaml':
            assert file, f'{document.name}: the text before a file names it\n{block}'
            content = yaml.safe_load(block)
            if 'devices' in content:
                (tmp_path / file).write_text(block)
                assert read_fleet(tmp_path / file)
            elif 'services' in content:
                assert parse_services(block)
            else:
                assert unknown_parameters(content) == []


@pytest.mark.parametrize('document', TUTORIALS, ids=lambda path: path.stem)
def test_programs_of_a_tutorial_compile(document: Path) -> None:
    for language, block, _ in blocks(document):
        if language == 'python':
            compile(block, document.name, 'exec')


def test_every_tutorial_has_something_to_run() -> None:
    assert all(any(language == 'sh' for language, _, _ in blocks(d)) for d in TUTORIALS)


def test_wrong_parameters_are_found() -> None:
    assert unknown_parameters({'/**/inference_node': {'ros__parameters': {'modell': 1}},
                               '/**/no_node': {'ros__parameters': {'model': ''}}}) == [
        'modell', 'no_node']
