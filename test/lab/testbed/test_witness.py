# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

from dataclasses import replace
import math
from pathlib import Path
import threading

import pytest
import torch

from intradp_lab.testbed.checking_channel import Arrived, CheckingChannel, pattern
from intradp_ros.runtime.transport.memory_channel import memory_pair
from intradp_ros.split.regions.region import Region
from intradp_ros.wire.chunking import ExpectedTransfer, Reassembler
from intradp_ros.wire.cutting import cut_into_chunks
from intradp_ros.wire.frames import Chunk, Frame

TENSOR = torch.zeros(1, 3, 40, 50)
REGION = Region(0, 40)


def chunks(inference: int = 1) -> list[Chunk]:
    return list(cut_into_chunks(TENSOR, session=1, epoch=1, inference=inference, schedule=0,
                                transfer=2, value=7, region=REGION, chunk_bytes=5000))


def received(frames: list[Chunk], spoil: bool) -> tuple[Arrived, torch.Tensor]:
    """Send chunks from one checking channel to another, the first spoilt if asked for."""
    one, other = memory_pair()
    sender, receiver = CheckingChannel(one), CheckingChannel(other)
    pile = Reassembler(
        lambda chunk: ExpectedTransfer(7, REGION, TENSOR.dtype, tuple(TENSOR.shape)))
    done: list[torch.Tensor] = []
    complete = threading.Event()

    def take(frame: Frame) -> None:
        assert isinstance(frame, Chunk)
        tensor = pile.add(frame)
        if tensor is not None:
            done.append(tensor)
            complete.set()

    receiver.listen(take)
    if spoil:
        one.send(replace(frames[0], data=bytes(len(memoryview(frames[0].data).cast('B')))))
    for frame in frames[int(spoil):]:
        sender.send(frame)
    assert complete.wait(60)
    for channel in (sender, receiver):
        channel.close()
    return receiver.arrived, done[0]


def test_every_chunk_has_bytes_of_its_own_and_arrives_with_them() -> None:
    arrived, tensor = received(chunks(), spoil=False)
    assert (arrived.chunks, arrived.nbytes, arrived.wrong) == (
        math.ceil(24000 / 5000), 24000, 0)
    again, other = received(chunks(inference=2), spoil=False)
    assert again.wrong == 0 and not torch.equal(
        tensor.view(torch.uint8), other.view(torch.uint8))


def test_bytes_that_are_not_those_that_were_sent_are_counted() -> None:
    arrived, _ = received(chunks(), spoil=True)
    assert arrived.wrong == 1


def test_probes_and_encoded_chunks_keep_their_bytes() -> None:
    probe, = cut_into_chunks(torch.ones(100), session=1, epoch=0, inference=0, schedule=0,
                             transfer=0, value=0, region=Region(0, 1), chunk_bytes=5000)
    encoded = replace(chunks()[0], codec=3)
    one, other = memory_pair()
    sender = CheckingChannel(one)
    seen: list[bytes] = []
    both = threading.Event()

    def take(frame: Frame) -> None:
        assert isinstance(frame, Chunk)
        seen.append(bytes(frame.data))
        if len(seen) == 2:
            both.set()

    receiver = CheckingChannel(other)
    receiver.listen(take)
    for frame in (probe, encoded):
        sender.send(frame)
    assert both.wait(60)
    assert sorted(seen) == sorted(bytes(frame.data) for frame in (probe, encoded))
    assert receiver.arrived == Arrived()
    for channel in (sender, receiver):
        channel.close()


def test_counts_go_through_a_file(tmp_path: Path) -> None:
    Arrived(3, 4000, 1).save(tmp_path / 'arrived.json')
    assert Arrived.load(tmp_path / 'arrived.json') == Arrived(3, 4000, 1)


@pytest.mark.parametrize('field', ['inference', 'transfer', 'chunk'])
def test_patterns_differ_by_place(field: str) -> None:
    first = chunks()[0]
    moved = replace(first, **{field: getattr(first, field) + 1})
    assert bytes(pattern(first)) != bytes(pattern(moved))
