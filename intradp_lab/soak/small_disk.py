# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""A folder on a small disk of its own, in memory, that can be filled (Linux, as root)."""
from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
import errno
from pathlib import Path

from intradp_lab.emulation.namespaces import NetworkError, run

_BLOCK = bytes(1 << 16)
_FILLER = 'filler'


@contextmanager
def small_disk(folder: Path, megabytes: int) -> Iterator[bool]:
    """
    Put a disk of that size at a folder, which is made; it is gone when the context is left.

    Yields whether there is one: where the system refuses, the folder is a plain one.
    """
    folder.mkdir(parents=True, exist_ok=True)
    try:
        run('mount', '-t', 'tmpfs', '-o', f'size={megabytes}m', 'intradp-soak', str(folder))
    except (NetworkError, FileNotFoundError):
        yield False
        return
    try:
        yield True
    finally:
        run('umount', '--lazy', str(folder))


@contextmanager
def filled(folder: Path) -> Iterator[None]:
    """Leave no byte free on a folder's disk, until the context is left."""
    filler = folder / _FILLER
    try:
        _fill(filler)
        yield
    finally:
        filler.unlink()


def _fill(filler: Path) -> None:
    """Write until the disk takes no more."""
    try:
        with filler.open('wb', buffering=0) as file:
            while file.write(_BLOCK):
                pass
    except OSError as error:
        if error.errno != errno.ENOSPC:
            raise
