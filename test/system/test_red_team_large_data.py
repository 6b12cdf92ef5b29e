# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""The red team once more, over the transport `large_data`, which the other tests never use."""
from __future__ import annotations

import os
from pathlib import Path
import subprocess
import sys

import pytest

from intradp_lab.emulation.network import available, shaped_link

ATTACKS = 'false_rows or false_controls or old_frames'
pytestmark = [pytest.mark.slow,
              pytest.mark.skipif(available() is not None, reason=str(available()))]


def test_strangers_over_large_data(tmp_path: Path) -> None:
    """In a network of its own: with LOCALHOST the middleware would take plain UDP."""
    with shaped_link(1000.0, 'intradp-red') as link:
        ended = subprocess.run(
            [*link.exec_prefix('robot'), str(Path(sys.executable).with_name('pytest')), '-v',
             '-p', 'no:cacheprovider', str(Path(__file__).with_name('test_red_team.py')), '-k',
             ATTACKS], env={**os.environ, 'RED_TEAM_TRANSPORT': 'large_data'}, text=True,
            capture_output=True, timeout=900)
    assert ended.returncode == 0, ended.stdout[-4000:]
    assert ended.stdout.count(' PASSED') == 8
