# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""
A wall clock that jumps, for some processes only (Linux with glibc and a C compiler).

They preload a small library (`wall_clock.c`), made when it is needed.  Monotonic
clocks, and all clocks of other processes, go on as they were.
"""
from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
import shutil
import subprocess
import sys

_SOURCE = Path(__file__).with_suffix('.c')
_COMPILERS = ('cc', 'gcc', 'clang')
#: They stand between the names of libraries in LD_PRELOAD, and cannot be part of one.
_SEPARATORS = {' ', ':'}


@dataclass(frozen=True, slots=True)
class WallClock:
    """The wall clock of all processes that are started with its environment."""

    library: Path
    file: Path

    def set_ahead(self, seconds: int) -> None:
        """Let the clock show so many seconds more than the machine's (below 0: fewer)."""
        with self.file.open('r+b', buffering=0) as file:  # processes have mapped these bytes
            file.write(_as_bytes(seconds))

    def environment(self) -> Mapping[str, str]:
        """Return the variables that give a process this clock."""
        return {'LD_PRELOAD': str(self.library), 'INTRADP_WALL_CLOCK': str(self.file)}


def wall_clocks(names: Sequence[str], folder: Path) -> Mapping[str, WallClock]:
    """Return a clock for each name, kept in `folder`; none where they cannot be made."""
    library = _library(folder)
    if library is None:
        return {}
    clocks = {name: WallClock(library, folder / f'clock-{name}') for name in names}
    for clock in clocks.values():
        clock.file.write_bytes(_as_bytes(0))
    return clocks


def _library(folder: Path) -> Path | None:
    """Compile the library into a folder; None where it cannot be made, or not be preloaded."""
    library = folder / 'wall_clock.so'
    compiler = next(filter(None, map(shutil.which, _COMPILERS)), None)
    if compiler is None or set(str(library)) & _SEPARATORS:
        return None
    made = subprocess.run([compiler, '-O2', '-shared', '-fPIC', '-pthread', str(_SOURCE), '-o',
                           str(library), '-ldl'], capture_output=True, check=False)
    return library if made.returncode == 0 else None


def _as_bytes(seconds: int) -> bytes:
    return seconds.to_bytes(8, sys.byteorder, signed=True)
