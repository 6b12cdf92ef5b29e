# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""A disk that is full while files are written: the error names the file, and those before stay."""
from __future__ import annotations

from pathlib import Path
import shutil
import subprocess
import sys

import pytest

SCRIPT = Path(__file__).with_name('fill_disk.py')
MOUNT = 'mount -t tmpfs -o size=1m tmpfs "$1"'


def alone(script: str, *words: str) -> subprocess.CompletedProcess[str]:
    """Run a script in a mount namespace of its own."""
    return subprocess.run(['unshare', '--mount', 'sh', '-c', script, 'sh', *words], text=True,
                          capture_output=True, timeout=120)


def test_nothing_half_written_is_taken_for_whole(tmp_path: Path) -> None:
    if not shutil.which('unshare') or alone(MOUNT, str(tmp_path)).returncode:
        pytest.skip('no disk of its own may be mounted here')
    done = alone(f'{MOUNT} && exec "$2" "$3" "$1"', str(tmp_path), sys.executable, str(SCRIPT))
    assert done.returncode == 0 and 'intact' in done.stdout, done.stderr
