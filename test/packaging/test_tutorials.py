# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""The commands of the tutorials do what the tutorials say."""
from __future__ import annotations

import os
from pathlib import Path
import re
import subprocess
import sys

import pytest

TUTORIALS = sorted((Path(__file__).parents[2] / 'doc' / 'tutorials').glob('*.md'))
TIMEOUT = 300


def commands(document: Path) -> list[str]:
    """Return the blocks that are meant for a shell on any machine."""
    return re.findall(r'^```sh\n(.*?)^```', document.read_text(), re.DOTALL | re.MULTILINE)


@pytest.mark.slow
@pytest.mark.parametrize('document', TUTORIALS, ids=lambda path: path.stem)
def test_the_commands_of_a_tutorial_run(document: Path, tmp_path: Path) -> None:
    path = f'{Path(sys.executable).parent}{os.pathsep}{os.environ["PATH"]}'
    for block in commands(document):
        done = subprocess.run(['bash', '-euc', block], cwd=tmp_path, text=True, timeout=TIMEOUT,
                              capture_output=True, env={**os.environ, 'PATH': path})
        assert done.returncode == 0, f'{block}\n{done.stdout}\n{done.stderr}'


def test_tutorials_have_commands() -> None:
    assert any(commands(document) for document in TUTORIALS)
