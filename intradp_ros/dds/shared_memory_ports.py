# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""
Ports of Fast DDS in shared memory that a killed process left empty.

Fast DDS keeps a file for each port of its shared memory; anyone who sends to it or
reads from it makes the file if it is missing.  A process that is killed after that
and before it has given the file a size leaves it empty.  Every process that opens
the port then waits for somebody to fill it, without end and without a word
(eProsima/Fast-DDS, issue 3878).  Some ports are the same in all domains: with
one of those no node of the machine starts any more.
"""
from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
import re
import time

FOLDER = Path('/dev/shm')
#: Seconds after which an empty file is nobody's work in progress: filling it follows at once.
FILLED_WITHIN = 2.0
_PORT = re.compile(r'fast(?:dds|rtps)_port\d+')


def unfinished_ports(folder: Path = FOLDER) -> Sequence[Path]:
    """Return the files of ports that nobody will fill any more."""
    found = []
    for path in sorted(folder.glob('fast*_port*')):
        try:
            state = path.stat()
        except OSError:
            continue  # it has just been removed
        if (_PORT.fullmatch(path.name) and not state.st_size
                and time.time() - state.st_mtime >= FILLED_WITHIN):
            found.append(path)
    return found


def unfinished_ports_problem(folder: Path = FOLDER) -> str:
    """Return what such ports spoil, and the fix; '' if there are none."""
    found = ' '.join(map(str, unfinished_ports(folder)))
    return found and (
        f'{found}: left empty by a process that was killed; whatever uses Fast DDS may wait for '
        f'that without end; run: rm {found}; and start again what hangs')
