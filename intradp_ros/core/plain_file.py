# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""
Files and folders that somebody names: a pipe that nobody fills, or a device, is none.

A file to read may be reached by a link; one to write may not, as others may have laid it.
"""
from __future__ import annotations

import errno
import os
from pathlib import Path
import stat
import tempfile
from typing import BinaryIO

#: No pipe is waited for, and no terminal becomes that of the process.
_FLAGS = os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY
#: Bytes that are written to see whether a disk has room.
_PROBE = 1 << 12


def open_to_read(path: Path) -> BinaryIO:
    """
    Open a file to read it.

    :raises OSError: if it cannot be read, or is not a regular file; it names `path`.
    """
    handle = os.open(path, os.O_RDONLY | _FLAGS)
    mode = os.fstat(handle).st_mode
    if stat.S_ISREG(mode):
        return os.fdopen(handle, 'rb')
    os.close(handle)
    if stat.S_ISDIR(mode):
        raise IsADirectoryError(errno.EISDIR, 'is a folder, not a file', str(path))
    raise OSError(errno.EINVAL, 'is a pipe or a device, not a file', str(path))


def open_to_write(path: Path, flags: int = 0) -> int:
    """
    Open a file to read and write, and make it where there is none; return its descriptor.

    :raises FileExistsError: if a link or a pipe is there.
    :raises OSError: if it cannot be opened.
    """
    try:
        handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | _FLAGS | flags, 0o666)
    except OSError as error:
        if error.errno != errno.ELOOP:
            raise
    else:
        if stat.S_ISREG(os.fstat(handle).st_mode):
            return handle
        os.close(handle)
    raise FileExistsError(errno.EEXIST, 'is a link or a pipe, where a file is to be written: '
                          'remove it', str(path))


def check_file(path: str) -> None:
    """Raise OSError if a file cannot be opened to read it."""
    open_to_read(Path(os.path.expanduser(path))).close()


def check_folder(path: str) -> None:
    """Raise OSError unless files can be written in a folder, which may have to be made."""
    absolute = Path(path).absolute()
    there = next(place for place in (absolute, *absolute.parents) if os.path.lexists(place))
    if not there.is_dir():
        raise NotADirectoryError(errno.ENOTDIR, 'is a file, not a folder', str(there))
    try:
        with tempfile.TemporaryFile(dir=there, buffering=0) as probe:
            probe.write(bytes(_PROBE))
    except OSError as error:
        raise OSError(error.errno, f'nothing can be written in this folder: {error.strerror}',
                      str(there)) from None
