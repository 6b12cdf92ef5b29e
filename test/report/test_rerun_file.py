# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""`intradp view --rerun`: Rerun itself takes the file, and finds the figures of the report."""
from __future__ import annotations

import os
from pathlib import Path
import subprocess
import sys

import pytest
from recorded_demos import DEMOS, record

from intradp_ros.cli.main import main

pytestmark = pytest.mark.slow
pytest.importorskip('rerun', reason="an extra: pip install 'rerun-sdk>=0.26'")
#: What each file holds of the demo's figures.
SAID = {'sharing': ['311', '712', '2.5', 'server killed', '/picture'],
        'fleet': ['413 ms', 'missed'],
        'language': ['disk of drone', 'block'], 'training': ['2.4721', '2.4722'],
        'serving': ['85.6', 'hall'], 'perception': ['40 of 40 frames']}


def rerun(folder: Path, *words: str) -> str:
    return subprocess.run(
        [sys.executable, '-m', 'rerun', 'rrd', *words], cwd=folder, capture_output=True, text=True,
        check=True, timeout=120, env={**os.environ, 'HOME': str(folder)}).stdout


@pytest.mark.parametrize('demo', DEMOS)
def test_rerun_takes_the_file(tmp_path: Path, demo: str,
                              capsys: pytest.CaptureFixture[str]) -> None:
    record(tmp_path / demo, demo)
    file = tmp_path / 'demo.rrd'
    assert main(['view', str(tmp_path / demo), '--rerun', str(file)]) == 0
    assert f'rerun {file}' in capsys.readouterr().out.replace('\n', '')
    rerun(tmp_path, 'verify', str(file))
    text = rerun(tmp_path, 'print', '-vvv', str(file))
    assert [each for each in SAID[demo] if each not in text] == []
