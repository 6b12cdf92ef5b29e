# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""Stored weights are what their name says, in a limited folder in which others' files stay."""
from __future__ import annotations

import hashlib
import os
from pathlib import Path
import time

from hypothesis import given, settings
from hypothesis import strategies as st
import pytest
from safetensors.torch import load_file
import torch

from intradp_ros.blobs.store import BlobStore, StoreFullError


def flat(number: int, nbytes: int = 1000) -> torch.Tensor:
    return torch.randint(0, 256, (nbytes,), dtype=torch.uint8,
                         generator=torch.Generator().manual_seed(number))


def used(store: BlobStore, digest: str, ago: float) -> None:
    """Let a file have been used so long ago."""
    when = time.time() - ago
    os.utime(store.folder / f'{digest}.safetensors', (when, when))


def test_what_is_stored_is_read_again_and_by_anyone_who_knows_safetensors(tmp_path: Path) -> None:
    store, data = BlobStore(tmp_path / 'new', 1 << 20), flat(1)
    digest = store.put(data)
    assert digest == hashlib.sha256(data.numpy().tobytes()).hexdigest()
    assert store.nbytes(digest) == 1000
    found = store.load(digest)
    assert found is not None and torch.equal(found, data)
    assert torch.equal(load_file(store.folder / f'{digest}.safetensors')['data'], data)
    assert store.load('0' * 64) is None and store.nbytes('0' * 64) is None


@given(st.lists(st.integers(1, 400), min_size=1, max_size=6), st.randoms(use_true_random=False))
@settings(max_examples=30)
def test_pieces_may_come_in_any_order(tmp_path_factory, lengths, luck) -> None:
    store = BlobStore(tmp_path_factory.mktemp('store'), 1 << 20)
    data = flat(2, sum(lengths))
    digest = hashlib.sha256(data.numpy().tobytes()).hexdigest()
    part = store.part(digest, data.nbytes)
    places = [(sum(lengths[:k]), length) for k, length in enumerate(lengths)]
    luck.shuffle(places)
    for offset, length in places:
        assert store.nbytes(digest) is None
        part.write(offset, data[offset:offset + length])
    assert part.finish()
    found = store.load(digest)
    assert found is not None and torch.equal(found, data)


def test_what_is_wrong_is_never_stored(tmp_path: Path) -> None:
    store, data = BlobStore(tmp_path, 1 << 20), flat(3)
    digest = hashlib.sha256(data.numpy().tobytes()).hexdigest()
    for given_bytes in (flat(4), data[:999]):
        part = store.part(digest, 1000)
        part.write(0, given_bytes)
        assert not part.finish()
        assert store.nbytes(digest) is None and not list(tmp_path.iterdir())
    with pytest.raises(ValueError, match='1000 bytes at 1'):
        store.part(digest, 1000).write(1, data)


def test_a_file_that_changed_is_removed_and_not_used(tmp_path: Path) -> None:
    store = BlobStore(tmp_path, 1 << 20)
    digest = store.put(flat(5))
    path = tmp_path / f'{digest}.safetensors'
    with path.open('r+b') as file:
        file.seek(-1, os.SEEK_END)
        file.write(b'\xff' if flat(5)[-1] != 255 else b'\0')
    assert store.load(digest) is None and not path.exists()


def test_the_least_recently_used_makes_room(tmp_path: Path) -> None:
    store = BlobStore(tmp_path, 3500)
    first, second, third = (store.put(flat(k)) for k in range(3))
    for ago, digest in ((300, second), (200, first), (100, third)):
        used(store, digest, ago)
    store.put(flat(9))
    assert store.nbytes(second) is None
    assert store.nbytes(first) == store.nbytes(third) == 1000
    used(store, first, 400)
    store.load(first)  # and so it is the one that was used last
    used(store, third, 100)
    store.put(flat(10))
    assert store.nbytes(first) == 1000 and store.nbytes(third) is None


def test_what_is_needed_stays_and_the_limit_holds(tmp_path: Path) -> None:
    store = BlobStore(tmp_path, 2500)
    first, second = store.put(flat(1)), store.put(flat(2))
    with pytest.raises(StoreFullError, match='1000 bytes more do not fit'):
        store.part('0' * 64, 1000, keep=(first, second))
    store.part('0' * 64, 1000, keep=(second,)).drop()
    assert store.nbytes(first) is None and store.nbytes(second) == 1000
    with pytest.raises(StoreFullError):
        store.part('0' * 64, 2501)


def test_what_others_put_there_is_neither_counted_nor_touched(tmp_path: Path) -> None:
    store = BlobStore(tmp_path, 1500)
    theirs = [tmp_path / 'notes.txt', tmp_path / f'{"a" * 64}.safetensors',
              tmp_path / '.hidden.part']
    for path in theirs:
        path.write_bytes(bytes(5000))
        os.utime(path, (0, 0))
    elsewhere = tmp_path / 'elsewhere'
    elsewhere.mkdir()
    digest = BlobStore(elsewhere, 1 << 20).put(flat(6))
    link = tmp_path / f'{digest}.safetensors'
    link.symlink_to(elsewhere / link.name)
    os.utime(link, (0, 0), follow_symlinks=False)
    for number in range(3):
        store.put(flat(number))
    assert all(path.read_bytes() == bytes(5000) for path in theirs)
    assert link.is_symlink() and store.nbytes(digest) is None and store.load(digest) is None
    assert len(list(tmp_path.glob('*.safetensors'))) == 3  # theirs, the link, one of ours
    assert store.load('a' * 64) is None


def test_no_pipe_is_waited_for_and_no_link_followed_that_others_laid(tmp_path: Path) -> None:
    store, data, other = BlobStore(tmp_path, 1 << 20), flat(1), tmp_path / 'other'
    digest = BlobStore(tmp_path / 'elsewhere', 1 << 20).put(data)
    os.mkfifo(tmp_path / f'{digest}.safetensors')
    slot = store.slot(1000)
    assert store.read_into(digest, slot) is None and store.load(digest) is None
    assert store.nbytes(digest) is None and not store.small(1 << 20)
    other.write_text('of the owner of the store')
    part = store.part(digest, data.nbytes)
    (laid,) = tmp_path.glob('.intradp-*.part')
    laid.unlink()
    laid.symlink_to(other)
    part.write(0, data)
    assert not part.finish() and not laid.is_symlink()
    assert other.read_text() == 'of the owner of the store'


def test_a_mapped_weight_outlives_its_file(tmp_path: Path) -> None:
    store = BlobStore(tmp_path, 1500)
    found = store.load(store.put(flat(7)))
    store.put(flat(8))
    assert found is not None and torch.equal(found, flat(7))


@pytest.mark.parametrize('name', ['../' + 'a' * 61, 'A' * 64, '', 'a' * 65])
def test_only_digests_name_files(tmp_path: Path, name: str) -> None:
    with pytest.raises(ValueError, match='not a SHA-256'):
        BlobStore(tmp_path, 1000).load(name)


def test_parts_that_were_left_behind_go_after_an_hour(tmp_path: Path) -> None:
    store = BlobStore(tmp_path, 1 << 20)
    store.part('0' * 64, 10)
    store.part('1' * 64, 10)
    old, new = sorted(tmp_path.iterdir())
    os.utime(old, (time.time() - 4000,) * 2)
    store.put(flat(1))
    assert not old.exists() and new.exists()
