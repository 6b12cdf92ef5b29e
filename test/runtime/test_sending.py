# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""Chunks of what encodings make smaller: as large on the link as they should be, and exact."""
from __future__ import annotations

from collections.abc import Callable, Iterator
from queue import Queue

import pytest
import torch

from intradp_ros.link.chunk_size import MOST_SMALLER
from intradp_ros.runtime.transport.memory_channel import memory_pair
from intradp_ros.runtime.transport.sending import SendContext, Sender
from intradp_ros.runtime.transport.serial_executor import SerialExecutor
from intradp_ros.runtime.transport.traffic import Traffic
from intradp_ros.schedule.schedule import ROBOT, Schedule, SERVER, Transfer
from intradp_ros.split.regions.region import Region
from intradp_ros.wire.chunking import ExpectedTransfer, Reassembler
from intradp_ros.wire.cutting import NO_STAMP
from intradp_ros.wire.frames import Chunk, Frame

CHUNK, SHAPE = 15_000, (1, 32, 20, 250)
GENERATOR = torch.Generator().manual_seed(0)
Send = Callable[[torch.Tensor], list[Chunk]]


def activations(dead: float) -> torch.Tensor:
    """Return floats of which a part is zero, line by line."""
    alive = torch.rand(*SHAPE[:3], 1, generator=GENERATOR) >= dead
    return torch.where(alive, torch.randn(SHAPE, generator=GENERATOR), 0.0)


@pytest.fixture
def send() -> Iterator[Send]:
    """Yield what sends a value as a robot does, and returns the chunks, once all are there."""
    robot, server = memory_pair(CHUNK)
    received: Queue[Frame] = Queue()
    server.listen(received.put)
    way = SendContext(robot, 1, SerialExecutor('test'), Traffic(), frozenset({'floats'}))
    schedule = Schedule((Transfer(0, 3, Region(0, 20), ROBOT, SERVER, 'floats'),), {})
    expected = ExpectedTransfer(3, Region(0, 20), torch.float32, SHAPE, 'floats')

    def sent(value: torch.Tensor) -> list[Chunk]:
        Sender(way, schedule, 1, 1, 0, NO_STAMP, 'link', ('value',), pytest.fail)(0, value)
        pile, chunks = Reassembler(lambda chunk: expected), []
        while True:
            chunk = received.get(timeout=60)
            assert isinstance(chunk, Chunk)
            chunks.append(chunk)
            whole = pile.add(chunk)
            if whole is not None:
                assert torch.equal(whole, value)
                return chunks
    yield sent
    way.executor.close()
    robot.close()
    server.close()


def test_what_gets_smaller_is_cut_into_larger_pieces(send: Send) -> None:
    value = activations(0.8)
    first, second = send(value), send(value)
    assert len(first) == pytest.approx(value.numel() * 4 / CHUNK, abs=1)
    assert len(second) < len(first) / 3
    assert CHUNK / 2 < max(len(chunk.data) for chunk in second) < 1.5 * CHUNK


def test_pieces_are_four_times_as_large_at_most(send: Send) -> None:
    """And of the old size again as soon as the encoding has failed."""
    send(activations(0.999))
    full = send(activations(0.0))
    assert max(len(chunk.data) for chunk in full) <= MOST_SMALLER * CHUNK
    assert max(len(chunk.data) for chunk in send(activations(0.0))) <= CHUNK


def test_values_that_stay_as_they_are_are_cut_as_ever(send: Send) -> None:
    noise = torch.randint(-2**31, 2**31 - 1, SHAPE, dtype=torch.int32, generator=GENERATOR)
    value = noise.view(torch.float32).nan_to_num()
    assert len(send(value)) == len(send(value))
