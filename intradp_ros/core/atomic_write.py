# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""Files that are complete, or else as they were."""
from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, ExitStack, nullcontext
from contextvars import ContextVar
import errno
import fcntl
import os
from pathlib import Path
import secrets

from intradp_ros.core.plain_file import open_to_write

#: What ends with the innermost `all_or_none`, if there is one.
_TOGETHER: ContextVar[ExitStack | None] = ContextVar('together', default=None)


@contextmanager
def all_or_none() -> Iterator[None]:
    """
    Let what `replacing` writes in the block take its places at the end, when all is written.

    After an exception all files are as they were.
    """
    with ExitStack() as files:
        outer = _TOGETHER.set(files)
        try:
            yield
        finally:
            _TOGETHER.reset(outer)


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """
    Provide a path to write to; what is there takes the place of `path` in the end.

    Folders are made.  After an exception `path` is as it was.  The name of what is written first
    cannot be guessed, so nobody who writes in the folder, too, can lay a link there.

    :raises OSError: if it cannot be written; it names `path`.
    """
    with _naming(path):
        if path.exists() and not path.is_file():
            yield path  # a pipe, say
            return
        place = path.resolve()  # what a link points at is written or made, not the link
        place.parent.mkdir(parents=True, exist_ok=True)
        part = place.with_name(f'.{place.name}.{secrets.token_hex(4)}')

        def put(kind: type[BaseException] | None, *error: object) -> None:
            if kind is None:
                with _naming(path):
                    part.replace(place)
        together = _TOGETHER.get()
        with ExitStack() if together is None else nullcontext(together) as files:
            files.callback(part.unlink, missing_ok=True)
            yield part
            files.push(put)


@contextmanager
def _naming(path: Path) -> Iterator[None]:
    """Let an OSError name a file; a library's may say nothing but a text."""
    try:
        yield
    except OSError as error:
        raise OSError(error.errno or errno.EIO, error.strerror or str(error), str(path)
                      ) from error


@contextmanager
def sole_writer(path: Path) -> Iterator[None]:
    """
    Keep other processes that ask for it from writing a file while the block lasts.

    The folder is made; a file next to `path` is there meanwhile.

    :raises OSError: if another process has it, or nothing can be written there.
    """
    lock = path.resolve()
    lock.parent.mkdir(parents=True, exist_ok=True)
    lock = lock.with_name(f'.{lock.name}.lock')
    while True:
        try:
            handle = open_to_write(lock)
        except FileExistsError:
            raise
        except OSError as error:
            raise OSError(error.errno, error.strerror, str(path)) from error
        with os.fdopen(handle):
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise OSError(errno.EBUSY, 'another process is writing it', str(path)) from None
            if not lock.exists() or not os.path.samestat(lock.stat(), os.fstat(handle)):
                continue  # who had it has just let it go
            try:
                yield
            finally:
                lock.unlink(missing_ok=True)
            return


def write_atomically(path: Path, text: str) -> None:
    """
    Write a text as a whole; folders are made.

    :raises OSError: if it cannot be written; it names the file.
    """
    with replacing(path) as part:
        part.write_text(text)
