# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""
Files read past the page cache into memory that begins at a page.

Weights that are read again and again would fill the page cache, and push out what other
programs need.  Where a file system refuses direct reads (O_DIRECT) the cache is used, and
what was read is dropped from it afterwards.
"""
from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
import errno
import mmap
import os
from pathlib import Path
import stat

import torch

#: Bytes to which direct reads are aligned: a multiple of the blocks of any disk.
PAGE = mmap.PAGESIZE
#: Bytes of one request: disks are at their full rate from some 1 MiB on.
REQUEST = 8 << 20
_DIRECT = getattr(os, 'O_DIRECT', 0)  # there is none on macOS


class Slot:
    """
    Memory for one file of at most `nbytes`, aligned to pages; it is never moved.

    `memory` is all of it: whole pages, and one more, as direct reads end with a whole one.
    """

    def __init__(self, nbytes: int) -> None:
        self.nbytes = nbytes
        self._pages = mmap.mmap(-1, whole_pages(nbytes) + PAGE,
                                flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        if hasattr(mmap, 'MADV_HUGEPAGE'):  # matrices are read 10 % faster from large pages
            with suppress(OSError):
                self._pages.madvise(mmap.MADV_HUGEPAGE)
        self.memory = memoryview(self._pages)

    def tensor(self, begin: int, nbytes: int) -> torch.Tensor:
        """Return bytes of the slot as uint8, without a copy: the next read changes them."""
        return torch.frombuffer(self._pages, dtype=torch.uint8, count=nbytes, offset=begin)


@dataclass(frozen=True, slots=True)
class FileRead:
    """Bytes that were read, and whether past the page cache."""

    nbytes: int
    direct: bool


def whole_pages(nbytes: int) -> int:
    """Return the bytes of the pages that so many bytes take."""
    return -(-nbytes // PAGE) * PAGE


def read_pieces(path: Path, memory: memoryview, pieces: Sequence[tuple[int, int]]) -> FileRead:
    """
    Read pieces of a file (offset, bytes), in whole pages, to the same offsets of some memory.

    Next to the pieces memory is as it was before.

    :raises ValueError: if there is too little room.
    :raises OSError: if the file is not there, ends before, or cannot be read.
    """
    try:
        return _read(path, memory, _DIRECT, pieces)
    except OSError as error:
        if error.errno != errno.EINVAL or not _DIRECT:
            raise
    return _read(path, memory, 0, pieces)


def read_file(path: Path, memory: memoryview) -> FileRead:
    """
    Read a whole file to the beginning of some memory.

    The memory begins at a page and has room for the file and one page more.

    :raises ValueError: if there is too little room.
    :raises OSError: if the file is not there, or cannot be read.
    """
    try:
        return _read(path, memory, _DIRECT)
    except OSError as error:
        if error.errno != errno.EINVAL or not _DIRECT:
            raise
    return _read(path, memory, 0)


def _read(path: Path, memory: memoryview, flag: int,
          pieces: Sequence[tuple[int, int]] | None = None) -> FileRead:
    file = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY | flag)
    try:
        if not stat.S_ISREG((status := os.fstat(file)).st_mode):  # a pipe would be waited for
            raise FileNotFoundError(errno.ENOENT, 'is no regular file', str(path))
        size = status.st_size
        if whole_pages(size) > len(memory):
            raise ValueError(f'{path.name} has {size} bytes, there is room for {len(memory)} in '
                             'whole pages')
        count = 0
        for begin, nbytes in ((0, size),) if pieces is None else pieces:
            done, stop = begin // PAGE * PAGE, begin + nbytes
            last = min(len(memory), whole_pages(stop)) if pieces else len(memory)
            edges = ((done, bytes(memory[done:begin])), (stop, bytes(memory[stop:last]))) \
                if pieces else ()
            while done < stop:
                got = os.preadv(file, [memory[done:min(last, done + REQUEST)]], done)
                if not got:
                    raise OSError(errno.EIO, f'{path} ends after {done} of {stop} bytes')
                done, count = done + got, count + got
            for at, data in edges:
                memory[at:at + len(data)] = data
        if not flag and hasattr(os, 'posix_fadvise'):
            os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)
        return FileRead(count if pieces else size, bool(flag))
    finally:
        os.close(file)
