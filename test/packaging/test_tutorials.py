# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""
The blocks of the tutorials do what the tutorials say.

In the order of the page, in one folder: ``sh`` runs in bash and ``python`` as a program; ``yaml``
is written to the file that the text before it names, and is read.  Blocks without a language need
a robot; `test_documented_commands.py` parses these.
"""
from __future__ import annotations

from collections.abc import Iterator
import os
from pathlib import Path
import re
import subprocess
import sys
from typing import Any

import pytest
import yaml

from intradp_ros.cluster.fleet_file import read_fleet

ROOT = Path(__file__).parents[2]
TUTORIALS = sorted((ROOT / 'doc' / 'tutorials').glob('*.md'))
NODES = ROOT / 'intradp_ros' / 'nodes'
TIMEOUT = 300


def blocks(document: Path) -> Iterator[tuple[str, str, str]]:
    """Yield language, text and the file that the paragraph before names, of each block."""
    text = document.read_text()
    for match in re.finditer(r'^```(sh|python|yaml)\n(.*?)^```', text, re.DOTALL | re.MULTILINE):
        before = text[:match.start()].rstrip().rpartition('\n\n')[2]
        named = re.findall(r'`([\w.]+\.yaml)`', before)
        yield match[1], match[2], named[0] if named else ''


def run(language: str, block: str, folder: Path) -> None:
    """Run a block in a folder, with this environment's commands; its output if it fails."""
    path = f'{Path(sys.executable).parent}{os.pathsep}{os.environ["PATH"]}'
    command = ['bash', '-euc', block] if language == 'sh' else [sys.executable, '-c', block]
    done = subprocess.run(command, cwd=folder, text=True, timeout=TIMEOUT, capture_output=True,
                          env={**os.environ, 'PATH': path, 'PYTHONPATH': str(folder)})
    assert done.returncode == 0, f'{block}\n{done.stdout}\n{done.stderr}'


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
    for language, block, file in blocks(document):
        if language == 'yaml':
            (tmp_path / file).write_text(block)
        else:
            run(language, block, tmp_path)


@pytest.mark.parametrize('document', TUTORIALS, ids=lambda path: path.stem)
def test_files_of_a_tutorial_can_be_read(document: Path, tmp_path: Path) -> None:
    for language, block, file in blocks(document):
        if language == 'yaml':
            assert file, f'{document.name}: the text before a file names it\n{block}'
            content = yaml.safe_load(block)
            if 'devices' in content:
                (tmp_path / file).write_text(block)
                assert read_fleet(tmp_path / file)
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
