# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""Blobs read into slots: exact, hashed once, past the page cache where that can be."""
from __future__ import annotations

import ctypes
import errno
import hashlib
import mmap
import os
from pathlib import Path
import tempfile

import pytest
import torch

from intradp_ros.blobs.direct_read import PAGE, whole_pages
from intradp_ros.blobs.store import BlobStore, HEADER_BYTES

SIZES = (1, HEADER_BYTES, PAGE - HEADER_BYTES, PAGE, 3 * PAGE - HEADER_BYTES + 1, 100_000)


def flat(number: int, nbytes: int) -> torch.Tensor:
    return torch.randint(0, 256, (nbytes,), dtype=torch.uint8,
                         generator=torch.Generator().manual_seed(number))


@pytest.fixture
def disk() -> Path:
    """Return a folder that is not in memory, as /tmp may be."""
    with tempfile.TemporaryDirectory(dir='/var/tmp') as folder:
        yield Path(folder)


def cached_bytes(path: Path) -> int:
    """Return how many bytes of a file the page cache has, as the kernel says."""
    with path.open('rb') as file, mmap.mmap(
            file.fileno(), 0, mmap.MAP_PRIVATE) as pages:
        libc = ctypes.CDLL(None, use_errno=True)
        vector = (ctypes.c_ubyte * (whole_pages(len(pages)) // PAGE))()
        tensor = torch.frombuffer(pages, dtype=torch.uint8)
        failed = libc.mincore(ctypes.c_void_p(tensor.data_ptr()), ctypes.c_size_t(len(pages)),
                              vector)
        del tensor
        assert not failed, os.strerror(ctypes.get_errno())
        return PAGE * sum(item & 1 for item in vector)


@pytest.mark.parametrize('nbytes', SIZES)
def test_a_blob_in_a_slot_has_the_bytes_that_were_stored(disk: Path, nbytes: int) -> None:
    store, data = BlobStore(disk, 1 << 20), flat(nbytes, nbytes)
    digest = store.put(data)
    slot = store.slot(max(SIZES))
    slot.memory[:] = b'\xff' * len(slot.memory)
    found = store.read_into(digest, slot)
    assert found and torch.equal(found.data, data)
    assert slot.tensor(0, 1).data_ptr() % PAGE == 0


def test_a_slot_that_is_too_small_and_a_blob_that_is_not_there_are_said(disk: Path) -> None:
    store = BlobStore(disk, 1 << 20)
    digest = store.put(flat(1, 100_000))
    with pytest.raises(ValueError, match='there is room for'):
        store.read_into(digest, store.slot(50_000))
    assert store.read_into('0' * 64, store.slot(10)) is None


def test_a_blob_is_hashed_at_its_first_read_and_a_wrong_one_is_removed(
        disk: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    hashed = []
    right = BlobStore.read_into.__globals__['_digest']
    monkeypatch.setitem(BlobStore.read_into.__globals__, '_digest',
                        lambda data: hashed.append(1) or right(data))
    store = BlobStore(disk, 1 << 20)
    digest = store.put(flat(1, 5000))
    hashed.clear()
    slot = store.slot(5000)
    for _ in range(3):
        assert store.read_into(digest, slot)
    assert hashed == [1]
    path = disk / f'{digest}.safetensors'
    other = disk / 'other'
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    other.write_bytes(content)
    other.replace(path)  # as another process might: a file that was not seen yet
    assert store.read_into(digest, slot) is None and not path.exists()


def test_direct_reads_leave_the_page_cache_as_it_was(disk: Path) -> None:
    store = BlobStore(disk, 1 << 30)
    digest = store.put(flat(1, 8 << 20))
    path = disk / f'{digest}.safetensors'
    with path.open('rb') as file:
        os.fsync(file.fileno())
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    if cached_bytes(path):
        pytest.skip('this kernel keeps pages of written files')
    found = store.read_into(digest, store.slot(8 << 20))
    assert found and hashlib.sha256(found.data.numpy().data).hexdigest() == digest
    if not found.direct:
        pytest.skip('this file system has no direct reads')
    assert cached_bytes(path) == 0
    path.read_bytes()
    assert cached_bytes(path) >= 8 << 20  # buffered reads fill it: the test can see that


def test_where_direct_reads_are_refused_the_cache_serves_and_it_is_said_once(
        disk: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    opened = os.open

    def refuses(path: object, flags: int, *rest: object) -> int:
        if flags & os.O_DIRECT:
            raise OSError(errno.EINVAL, 'Invalid argument')
        return opened(path, flags, *rest)

    store = BlobStore(disk, 1 << 20)
    digests = [store.put(flat(k, 5000)) for k in range(2)]
    monkeypatch.setattr(os, 'open', refuses)
    slot = store.slot(5000)
    for k, digest in enumerate(digests):
        found = store.read_into(digest, slot)
        assert found and not found.direct and torch.equal(found.data, flat(k, 5000))
    assert [str(disk) in record.message for record in caplog.records] == [True]


