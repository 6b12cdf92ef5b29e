# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""Transfers survive being cut; whatever disagrees with the schedule is refused."""
from __future__ import annotations

from collections import Counter
from dataclasses import replace
from random import Random
import tracemalloc

from hypothesis import given, settings
from hypothesis import strategies as st
import pytest
import torch

from intradp_ros.link.chunk_size import MAX_CHUNK_BYTES
from intradp_ros.split.regions.region import Region
from intradp_ros.wire.chunking import ExpectedTransfer, Reassembler, TAMPERED
from intradp_ros.wire.cutting import chunk_count, chunk_size, CODEC_NONE, cut_into_chunks
from intradp_ros.wire.frames import Chunk, MalformedFrameError, Stamp

ADDRESS = {'session': 5, 'epoch': 1, 'schedule': 2, 'transfer': 3, 'value': 4}


def cut(tensor: torch.Tensor, chunk_bytes: int, inference: int = 7) -> list[Chunk]:
    """Cut a transfer with the usual address; its region is its first dimension."""
    rows = tensor.shape[0] if tensor.dim() else 1
    return list(cut_into_chunks(tensor, **ADDRESS, inference=inference,
                                region=Region(10, 10 + rows),
                                chunk_bytes=chunk_bytes, stamp=Stamp(1, 2, 'camera')))


def expecting(tensor: torch.Tensor) -> ExpectedTransfer:
    """Return what a receiver of `cut(tensor)` expects."""
    rows = tensor.shape[0] if tensor.dim() else 1
    return ExpectedTransfer(4, Region(10, 10 + rows), tensor.dtype, tuple(tensor.shape))


@settings(max_examples=200)
@given(elements=st.integers(0, 10**7), most=st.integers(1, MAX_CHUNK_BYTES))
def test_the_count_determines_the_cut(elements: int, most: int) -> None:
    """Chunks of the size that follows from the count are full, and as many."""
    count = chunk_count(elements, most)
    size = chunk_size(elements, count)
    assert size <= most
    assert chunk_count(elements, max(1, size)) == count
    assert (count - 1) * size < max(elements, 1) <= max(count * size, 1)


@settings(max_examples=100)
@given(shape=st.lists(st.integers(0, 9), max_size=3).map(tuple),
       dtype=st.sampled_from((torch.float32, torch.uint8, torch.bfloat16, torch.bool)),
       chunk_bytes=st.integers(1, 300), order=st.randoms(use_true_random=False))
def test_round_trip_in_any_order(shape, dtype, chunk_bytes, order) -> None:
    """Shuffled chunks give the tensor when the last one comes; repeated ones are refused."""
    tensor = torch.randint(2, shape).to(dtype)
    chunks = cut(tensor, chunk_bytes)
    again = chunks + order.choices(chunks, k=3)
    order.shuffle(again)
    pile = Reassembler(lambda chunk: expecting(tensor))
    results, repeated = [], 0
    for chunk in again:
        try:
            results.append(pile.add(chunk))
        except MalformedFrameError as error:
            assert error.cause == 'repeated'
            repeated += 1
    assert repeated == 3
    finished = [result for result in results if result is not None]
    assert len(finished) == 1
    assert finished[0].dtype == dtype
    assert torch.equal(finished[0], tensor)


def test_chunks_say_what_they_carry() -> None:
    """Every field of a chunk is filled in."""
    first, second = cut(torch.arange(6, dtype=torch.int16).view(2, 3), 8)
    assert (first.chunk, second.chunk, first.count) == (0, 1, 2)
    assert (first.session, first.epoch, first.inference) == (5, 1, 7)
    assert (first.schedule, first.transfer, first.value) == (2, 3, 4)
    assert (first.start, first.stop, first.shape) == (10, 12, (2, 3))
    assert (first.dtype_code, first.dtype_bits, first.codec) == (0, 16, CODEC_NONE)
    assert first.stamp == Stamp(1, 2, 'camera')
    assert bytes(first.data) + bytes(second.data) == bytes((0, 0, 1, 0, 2, 0, 3, 0, 4, 0, 5, 0))


@pytest.mark.parametrize('chunk_bytes', [0, -1, MAX_CHUNK_BYTES + 1])
def test_impossible_chunk_sizes_are_refused(chunk_bytes: int) -> None:
    """The limit of the wire holds for the sender too."""
    with pytest.raises(ValueError, match='chunk_bytes must be'):
        cut(torch.zeros(3), chunk_bytes)


WRONG = [
    ('value', {'value': 9}), ('region', {'stop': 16}), ('region', {'start': 9}),
    ('dtype', {'dtype_code': 1}), ('dtype', {'dtype_bits': 64}), ('codec', {'codec': 1}),
    ('shape', {'shape': (4, 5)}), ('shape', {'shape': (2**31, 2**31)}),
    ('count', {'count': 2**31}), ('count', {'count': 0}), ('index', {'chunk': 2}),
    ('index', {'chunk': -1}), ('size', {'data': b''}), ('size', {'data': bytes(41)}),
]


@pytest.mark.parametrize(('cause', 'change'), WRONG, ids=lambda x: str(x))
def test_disagreeing_chunks_are_refused(cause: str, change: dict[str, object]) -> None:
    """Each false claim is refused under its cause, and the transfer still completes after it."""
    tensor = torch.rand(5, 4)
    good, other = cut(tensor, 40)
    pile = Reassembler(lambda chunk: expecting(tensor))
    assert pile.add(good) is None
    with pytest.raises(MalformedFrameError) as error:
        pile.add(replace(other, **change))
    assert error.value.cause == cause
    result = pile.add(other)
    assert result is not None and torch.equal(result, tensor)


def test_unexpected_transfers_are_refused() -> None:
    """What the schedule does not know is not stored."""
    pile = Reassembler(lambda chunk: None)
    with pytest.raises(MalformedFrameError, match='nothing is expected as transfer 3'):
        pile.add(cut(torch.zeros(3), 100)[0])
    assert pile.open_inferences == ()


def test_a_transfer_cut_in_two_ways_is_refused() -> None:
    """Chunks of one transfer agree on the count, or places would mix."""
    tensor = torch.rand(40)
    pile = Reassembler(lambda chunk: expecting(tensor))
    pile.add(cut(tensor, 40)[0])
    with pytest.raises(MalformedFrameError, match='cut differently'):
        pile.add(cut(tensor, 80)[1])


def test_dropped_and_displaced_inferences_stay_closed() -> None:
    """Late chunks of an inference that is over do not open it again; others go on."""
    tensor = torch.rand(4)
    parts = {n: cut(tensor, 8, inference=n) for n in range(6)}
    pile = Reassembler(lambda chunk: expecting(tensor), max_inferences=3)
    for number in (1, 2, 3):
        pile.add(parts[number][0])
    pile.drop(2)
    pile.add(parts[4][0])
    assert pile.open_inferences == (1, 3, 4)
    pile.add(parts[5][0])
    assert pile.open_inferences == (3, 4, 5)
    for closed in (0, 1, 2):
        with pytest.raises(MalformedFrameError, match='is over'):
            pile.add(parts[closed][1])
    result = pile.add(parts[3][1])
    assert result is not None and torch.equal(result, tensor)


def test_what_is_over_stays_closed_where_there_is_room_again() -> None:
    """Each for its own reason: one was displaced, one was dropped."""
    tensor = torch.rand(4)
    parts = {n: cut(tensor, 8, inference=n) for n in (1, 2, 3)}
    pile = Reassembler(lambda chunk: expecting(tensor), max_inferences=2)
    for number in (1, 2, 3):
        pile.add(parts[number][0])
    pile.drop(3)
    assert pile.open_inferences == (2,)
    for closed in (1, 3):
        with pytest.raises(MalformedFrameError, match='is over'):
            pile.add(parts[closed][1])


@pytest.mark.parametrize('byte', [0, 255])
def test_other_bytes_in_the_place_of_known_ones_are_reported(byte: int) -> None:
    """Whichever of them are larger; the same ones again are just that."""
    tensor = torch.full((4, 4), 1.0)
    first, _ = cut(tensor, 32)
    pile = Reassembler(lambda chunk: expecting(tensor))
    pile.add(first)
    for data, cause in ((bytes([byte]) * 32, TAMPERED), (bytes(first.data), 'repeated')):
        with pytest.raises(MalformedFrameError) as error:
            pile.add(replace(first, data=data))
        assert error.value.cause == cause


def test_inferences_older_than_all_that_are_open_displace_none() -> None:
    tensor = torch.rand(4)
    pile = Reassembler(lambda chunk: expecting(tensor), max_inferences=2)
    for number in (5, 6):
        pile.add(cut(tensor, 8, inference=number)[0])
    with pytest.raises(MalformedFrameError, match='is over'):
        pile.add(cut(tensor, 8, inference=3)[0])
    assert pile.open_inferences == (5, 6)


def test_the_largest_chunk_is_cut() -> None:
    [chunk] = cut(torch.zeros(MAX_CHUNK_BYTES // 4), MAX_CHUNK_BYTES)
    assert len(chunk.data) == MAX_CHUNK_BYTES


def test_a_reassembler_of_nothing_is_refused() -> None:
    with pytest.raises(ValueError, match='max_inferences'):
        Reassembler(lambda chunk: expecting(torch.zeros(1)), max_inferences=0)


def mutate(chunk: Chunk, random: Random) -> Chunk:
    """Return a chunk with one to three fields replaced by random values."""
    numbers = ('session', 'epoch', 'inference', 'schedule', 'transfer', 'value', 'start', 'stop',
               'chunk', 'count', 'dtype_code', 'dtype_bits', 'codec')
    changes: dict[str, object] = {}
    for name in random.sample((*numbers, 'shape', 'data'), random.randint(1, 3)):
        if name == 'shape':
            changes[name] = tuple(random.randrange(2**32) for _ in range(random.randrange(5)))
        elif name == 'data':
            changes[name] = random.randbytes(random.choice((0, 1, 1000, 60000)))
        else:
            changes[name] = random.choice((0, 1, 3, 255, 2**31, random.randrange(2**32)))
    return replace(chunk, **changes)


def test_ten_thousand_mutated_chunks() -> None:
    """None is accepted into the transfer, all refusals are counted, memory does not grow."""
    tensor = torch.rand(16, 250)
    chunks = cut(tensor, 4000)
    known = {n: ADDRESS[n] for n in ('session', 'epoch', 'schedule', 'transfer')}
    pile = Reassembler(
        lambda c: expecting(tensor) if all(getattr(c, n) == v for n, v in known.items())
        else None)
    for chunk in chunks[:-1]:
        pile.add(chunk)
    random, refused = Random(1), Counter[str]()
    tracemalloc.start()
    start, _ = tracemalloc.get_traced_memory()
    missing = replace(chunks[-1], data=b'')
    for chunk in (mutate(random.choice(chunks), random) for _ in range(10_000)):
        if chunk.inference < 7 or replace(chunk, data=b'') == missing:
            continue  # would displace the transfer, or is what it still needs
        try:
            assert pile.add(chunk) is None
        except MalformedFrameError as error:
            refused[error.cause] += 1
        if len(pile.open_inferences) > 1:
            pile.drop(pile.open_inferences[-1])
    end, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert {'unexpected', 'region', 'dtype', 'shape', 'count', 'size', 'repeated'} <= set(refused)
    assert end - start < 200_000
    result = pile.add(chunks[-1])
    assert result is not None and torch.equal(result, tensor)
