# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""
Blobs on disk, each in a safetensors file that is named by the SHA-256 of its bytes.

The folder may be used by several processes at once: a file appears there as a whole,
and is never changed.  What was used least lately makes room for new ones.  Files that
this module did not write are never touched, nor counted.
"""
from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager, ExitStack, suppress
from dataclasses import dataclass
import hashlib
import json
import logging
import math
import os
from pathlib import Path
import re
import tempfile
import threading
import time

from safetensors import safe_open, SafetensorError
import torch

from intradp_ros.blobs.direct_read import read_file, read_pieces, Slot
from intradp_ros.core.plain_file import check_folder, open_to_read

HEADER_BYTES = 256
"""Bytes of a file before its data: padded, so that the data are aligned for any kernel."""
_SHA = re.compile(r'[0-9a-f]{64}')
_NAME = re.compile(r'([0-9a-f]{64})\.safetensors')
_PART = re.compile(r'\.intradp-[0-9a-f]{64}-.*\.part')
_FORSAKEN = 3600.0  # seconds after which nobody writes to a part any more
_KEY = 'data'
_USED = 60.0  # seconds in which a blob is noted as used once
_LOG = logging.getLogger(__name__)


class StoreFullError(RuntimeError):
    """There is no room for what is to be stored."""


@dataclass(frozen=True, slots=True)
class Blob:
    """A blob in a slot (uint8, flat), and whether it was read past the page cache."""

    data: torch.Tensor
    direct: bool


@dataclass(frozen=True, slots=True)
class Entry:
    """A file of ours, with the bytes of its data, and when it was used last."""

    path: Path
    nbytes: int
    used: float

    @property
    def digest(self) -> str:
        """Return the digest that names it."""
        return self.path.stem


class BlobStore:
    """
    A folder of at most `limit` bytes of blobs; it is made when something is stored.

    Safe to call from several threads.  A blob that is read into a slot is compared with its digest
    the first time only: a file that this process has seen to be right is not replaced by another.
    """

    def __init__(self, folder: Path, limit: int) -> None:
        self.folder, self.limit = folder, limit
        self._right: dict[str, tuple[int, int]] = {}
        self._used: dict[str, float] = {}
        self._kept: Counter[str] = Counter()
        self._lock = threading.Lock()
        self._refused = False

    @contextmanager
    def keeping(self, digests: Collection[str]) -> Iterator[None]:
        """Let no blob of these make room for another while this lasts."""
        with self._lock:
            self._kept.update(digests)
        try:
            yield
        finally:
            with self._lock:
                self._kept -= Counter(digests)

    @property
    def kept_bytes(self) -> int:
        """Return the bytes of stored blobs that make no room now."""
        with self._lock:
            kept = tuple(self._kept)
        return sum(self.nbytes(digest) or 0 for digest in kept)

    def small(self, most: int) -> list[Entry]:
        """Return what is stored of blobs of at most so many bytes."""
        return [entry for entry in self._entries() if entry.nbytes <= most]

    def slot(self, nbytes: int) -> Slot:
        """Return memory into which blobs of at most so many bytes can be read."""
        return Slot(HEADER_BYTES + nbytes)

    def read_into(self, digest: str, slot: Slot) -> Blob | None:
        """
        Read a blob into a slot, past the page cache where the file system lets one.

        :returns: the blob, as long as nothing else is read into the slot; None if it is not
            stored, or has other bytes than its digest says (it is removed then).
        :raises ValueError: if the slot is too small.
        :raises OSError: if the disk fails.
        """
        path = self._path(digest)
        try:
            status = path.stat()
            read = read_file(path, slot.memory)
        except FileNotFoundError:
            return None
        nbytes = read.nbytes - HEADER_BYTES
        if nbytes <= 0 or bytes(slot.memory[:HEADER_BYTES]) != _header(nbytes):
            return None
        data = slot.tensor(HEADER_BYTES, nbytes)
        identity = status.st_ino, status.st_size
        if self._right.get(digest) != identity:
            if _digest(data) != digest:
                path.unlink(missing_ok=True)
                return None
            self._right[digest] = identity
        if not read.direct and not self._refused:
            self._refused = True
            _LOG.warning('the file system of %s refuses direct reads: blobs pass through the page '
                         'cache, and are dropped from it', self.folder)
        if (now := time.monotonic()) - self._used.get(digest, -math.inf) > _USED:
            self._used[digest] = now
            with suppress(OSError):
                os.utime(path)
        return Blob(data, read.direct)

    def read_pieces(self, digest: str, slot: Slot, pieces: Sequence[tuple[int, int]]) -> int:
        """
        Read pieces of a blob (offset, bytes) to where `read_into` would put them.

        :returns: the bytes that were read; 0 if this process has not seen the whole blob to be
            right.
        :raises OSError: if the disk fails.
        """
        path = self._path(digest)
        try:
            status = path.stat()
            if self._right.get(digest) != (status.st_ino, status.st_size):
                return 0
            return read_pieces(path, slot.memory, [
                (HEADER_BYTES + offset, nbytes) for offset, nbytes in pieces]).nbytes
        except FileNotFoundError:
            return 0

    def nbytes(self, digest: str) -> int | None:
        """Return the bytes stored under a digest, None if there are none."""
        entry = _entry(self._path(digest))
        return entry.nbytes if entry else None

    def load(self, digest: str) -> torch.Tensor | None:
        """
        Return the bytes stored under a digest, mapped into memory; None if there are none.

        They are compared with the digest first.  A file that has other bytes is removed.
        """
        path = self._path(digest)
        if _entry(path) is None:
            return None
        try:
            os.utime(path)
            with safe_open(path, framework='pt') as file:
                data: torch.Tensor = file.get_tensor(_KEY)
        except (OSError, SafetensorError):  # another process may have made room
            return None
        if _digest(data) != digest:
            path.unlink(missing_ok=True)
            return None
        return data

    def check_room(self, nbytes: int) -> None:
        """
        Check that so many bytes more could be written now, before anybody sends them.

        :raises StoreFullError: if the disk has less room.
        :raises OSError: if nothing can be written.
        """
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        check_folder(str(self.folder))
        disk = os.statvfs(self.folder)
        if (free := disk.f_bavail * disk.f_frsize) < nbytes:
            raise StoreFullError(f'no space left on the disk of {self.folder}: {nbytes} bytes are '
                                 f'needed, {free} are free')

    def part(self, digest: str, nbytes: int, keep: Collection[str] = ()) -> BlobPart:
        """
        Begin to store so many bytes; what is not to `keep` may have to make room.

        :raises StoreFullError: if there is no room, and none can be made.
        :raises OSError: if nothing can be written.
        """
        self._make_room(nbytes, keep)
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        return BlobPart(self._path(digest), digest, nbytes)

    def put(self, data: torch.Tensor) -> str:
        """Store bytes; return their digest."""
        digest = _digest(data)
        if self.nbytes(digest) is None:
            part = self.part(digest, data.nbytes)
            part.write(0, data)
            part.finish()
        return digest

    @contextmanager
    def all_or_nothing(self) -> Iterator[Callable[[torch.Tensor], str]]:
        """
        Give what stores bytes, of which none makes room for another while this lasts.

        What is new of them is removed if this ends by an exception.
        """
        new: list[str] = []
        with ExitStack() as kept:
            def put(data: torch.Tensor) -> str:
                digest = _digest(data)
                kept.enter_context(self.keeping((digest,)))
                if self.nbytes(digest) is None:
                    new.append(digest)
                    self.put(data)
                return digest
            try:
                yield put
            except BaseException:
                for digest in new:
                    self._path(digest).unlink(missing_ok=True)
                raise

    def _path(self, digest: str) -> Path:
        if not _SHA.fullmatch(digest):
            raise ValueError(f'{digest[:80]!r} is not a SHA-256')
        return self.folder / f'{digest}.safetensors'

    def _make_room(self, nbytes: int, keep: Collection[str]) -> None:
        found = sorted(self._entries(), key=lambda entry: entry.used)
        free = self.limit - sum(entry.nbytes for entry in found)
        with self._lock:
            kept = {*keep, *self._kept}
        if free + sum(e.nbytes for e in found if e.digest not in kept) < nbytes:
            found = []  # nothing is removed in vain
        for entry in found:
            if free >= nbytes:
                return
            if entry.digest not in kept:
                entry.path.unlink(missing_ok=True)
                free += entry.nbytes
        if free < nbytes:
            raise StoreFullError(f'{nbytes} bytes more do not fit into {self.folder}, which may '
                                 f'have {self.limit} and holds what is needed now')

    def _entries(self) -> Iterator[Entry]:
        """Yield what is stored; remove parts that were left behind long ago."""
        with suppress(FileNotFoundError):
            for item in list(os.scandir(self.folder)):
                path = self.folder / item.name
                if _NAME.fullmatch(item.name) and (entry := _entry(path)):
                    yield entry
                elif _PART.fullmatch(item.name):
                    _remove_forsaken(path)


class BlobPart:
    """
    Bytes that come in pieces; made by `BlobStore.part`.

    :raises OSError: by what writes, if the disk is full, say; it names the file.
    """

    def __init__(self, path: Path, digest: str, nbytes: int) -> None:
        self._path, self._digest, self._nbytes = path, digest, nbytes
        handle, name = tempfile.mkstemp('.part', f'.intradp-{digest}-', path.parent)
        # open until the end: others who write in the folder, too, may lay a link in its place
        self._part, self._file = Path(name), os.fdopen(handle, 'w+b')
        try:
            self._file.write(_header(nbytes))
            os.posix_fallocate(handle, 0, HEADER_BYTES + nbytes)
        except OSError as error:
            self.drop()
            raise OSError(error.errno, error.strerror, str(path)) from error

    def write(self, offset: int, data: torch.Tensor) -> None:
        """Put a piece to its place."""
        if not 0 <= offset <= offset + data.nbytes <= self._nbytes:
            raise ValueError(f'{data.nbytes} bytes at {offset} of {self._nbytes}')
        self._file.seek(HEADER_BYTES + offset)
        self._file.write(data.numpy().data)
        self._file.flush()

    def finish(self) -> bool:
        """Compare with the digest; store what is right, drop what is not, and return which."""
        content = hashlib.sha256()
        self._file.seek(0)
        right = self._file.read(HEADER_BYTES) == _header(self._nbytes)
        while block := self._file.read(1 << 20):
            content.update(block)
        right = right and content.hexdigest() == self._digest and os.path.samestat(
            status := os.fstat(self._file.fileno()), self._part.lstat()) \
            and status.st_size == HEADER_BYTES + self._nbytes
        if right:
            self._part.replace(self._path)
            self._file.close()
        else:
            self.drop()
        return right

    def drop(self) -> None:
        """Forget what came."""
        with suppress(OSError):  # what is written last may find no room
            self._file.close()
        self._part.unlink(missing_ok=True)


def _header(nbytes: int) -> bytes:
    """Return what a file of ours begins with: safetensors, one list of bytes."""
    text = json.dumps({'__metadata__': {'by': 'intradp_ros'}, _KEY: {
        'dtype': 'U8', 'shape': [nbytes], 'data_offsets': [0, nbytes]}})
    return (HEADER_BYTES - 8).to_bytes(8, 'little') + text.ljust(HEADER_BYTES - 8).encode()


def _entry(path: Path) -> Entry | None:
    """Return what is known of a file, None if it is not one that was written here."""
    try:
        if path.is_symlink():
            return None
        with open_to_read(path) as file:
            status = os.fstat(file.fileno())
            nbytes = status.st_size - HEADER_BYTES
            ours = nbytes > 0 and file.read(HEADER_BYTES) == _header(nbytes)
    except OSError:
        return None
    return Entry(path, nbytes, status.st_mtime) if ours else None


def _remove_forsaken(path: Path) -> None:
    with suppress(OSError):
        if not path.is_symlink() and time.time() - path.stat().st_mtime > _FORSAKEN:
            path.unlink()


def _digest(data: torch.Tensor) -> str:
    return hashlib.sha256(data.numpy().data).hexdigest()
