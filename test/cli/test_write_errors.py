# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""Commands on a full disk, or one that may only be read: a line, and nothing half written."""
from __future__ import annotations

from pathlib import Path
import shutil
import subprocess
import sys

import pytest

SCRIPT = Path(__file__).with_name('write_where_it_cannot.py')
MOUNT = 'mount -t tmpfs -o size=256k tmpfs "$1"'


def alone(script: str, *words: str) -> subprocess.CompletedProcess[str]:
    """Run a script in a mount namespace of its own."""
    return subprocess.run(['unshare', '--mount', 'sh', '-c', script, 'sh', *words], text=True,
                          capture_output=True, timeout=1800)


@pytest.mark.slow
@pytest.mark.parametrize('commands', [
    ('key', 'fleet plan', 'fleet show', 'serve plan'), ('profile', 'model add')])
def test_a_command_that_cannot_write_says_so_and_leaves_what_was_there(
        commands: tuple[str, ...], tmp_path: Path) -> None:
    if not shutil.which('unshare') or alone(MOUNT, str(tmp_path)).returncode:
        pytest.skip('no disk of its own may be mounted here')
    done = alone(f'{MOUNT} && exec "$2" "$3" "$@"'.replace('"$@"', '"$1" ' + ' '.join(
        f"'{name}'" for name in commands)), str(tmp_path), sys.executable, str(SCRIPT))
    assert done.returncode == 0, done.stderr[-3000:]
    assert [f'{name} whole' for name in commands] == done.stdout.splitlines()
