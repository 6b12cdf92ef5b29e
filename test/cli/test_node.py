# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""`intradp node` starts a node without ros2, with models of the folder it is called in."""
from __future__ import annotations

import os
from pathlib import Path
import shutil
import signal
import subprocess
import sys

from dispositions import heeded
from node_processes import own_domain, TESTS, TIMEOUT
import pytest

from intradp_lab.emulation.processes import starter
from intradp_ros.cli.main import main
from intradp_ros.core.processes import Command
from intradp_ros.nodes import node_modules


def test_a_node_starts_with_a_model_of_the_folder(tmp_path: Path) -> None:
    folder = tmp_path / 'work'
    folder.mkdir()
    shutil.copy(TESTS / 'small_models.py', folder / 'my_nets.py')
    with own_domain(tmp_path), starter(tmp_path / 'logs') as start:
        os.environ['PYTHONPATH'] = os.environ['PYTHONPATH'].replace(str(TESTS), '')
        script = f'import os, sys; os.chdir({str(folder)!r}); sys.argv[0] = "intradp"; ' \
                 'from intradp_ros.cli.main import main; sys.exit(main())'
        child = start(Command('node', [
            sys.executable, '-c', script, 'node', 'offload_node', '--ros-args',
            '-p', 'models:=["my_nets:dense 1x3x64x96 uint8"]']))
        child.wait_for_line(r'.*my_nets:dense 1x3x64x96 uint8 as offload.*transport udp.*',
                            TIMEOUT)
        child.wait_for_line(r'.*: active$', TIMEOUT)
        assert child.stop() == 0


def test_an_unknown_node_is_refused_with_those_that_there_are(
        capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(['node', 'no_node'])
    said = capsys.readouterr().err
    assert all(name in said for name in node_modules())


def test_a_node_that_is_interrupted_while_it_is_imported_leaves_no_traceback(
        tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also as the executable that CMake makes."""
    (tmp_path / 'rclpy.py').write_text('import os, signal\nos.kill(os.getpid(), signal.SIGINT)')
    monkeypatch.setenv('PYTHONPATH', f'{tmp_path}{os.pathsep}{os.environ["PYTHONPATH"]}')
    template = (Path(__file__).parents[2] / 'cmake' / 'executable.py.in').read_text()
    executable = tmp_path / 'executable.py'
    executable.write_text(template.replace('@module@', node_modules()['offload_node']))
    with heeded(signal.SIGINT):
        for words in (['-m', 'intradp_ros.cli', 'node', 'offload_node'], [str(executable)]):
            ended = subprocess.run([sys.executable, *words], capture_output=True, text=True)
            assert (ended.returncode, ended.stderr) == (-signal.SIGINT, '')
