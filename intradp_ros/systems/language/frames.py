# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""
Hidden states between devices, as chunks and back.

`inference` is the round, `transfer` names stage and lane.  A round's number is never used
again; `base` is the first round since requests were last computed anew, so that whoever
still waits for an older round gives it up.
"""
from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
import struct

import torch
from torch import Tensor

from intradp_ros.cluster.plan_id import PlanId
from intradp_ros.split.regions.region import Region
from intradp_ros.systems.language.lanes import Lane, lane_bytes, read_lane
from intradp_ros.wire.chunking import ExpectedTransfer, Reassembler
from intradp_ros.wire.cutting import split
from intradp_ros.wire.frames import Chunk, MalformedFrameError

MAX_LANES = 64
#: Bytes of the lane's description in front of the hidden states.
MAX_DESCRIPTION = 1 << 20
_OPEN_ROUNDS = 8
_HEAD = struct.Struct('<QH')


@dataclass(frozen=True, slots=True)
class Passing:
    """A lane of a round on its way to a stage; `hidden` is tokens x width."""

    round: int  # noqa: A003
    stage: int
    number: int
    base: int
    lanes: int
    lane: Lane
    hidden: Tensor


def to_chunks(id_: PlanId, passing: Passing, chunk_bytes: int) -> Iterator[Chunk]:
    """Yield the chunks of a lane's hidden states."""
    head = _HEAD.pack(passing.base, passing.lanes) + lane_bytes(passing.lane)
    hidden = passing.hidden.contiguous().view(-1).view(torch.uint8)
    data = torch.cat((torch.frombuffer(bytearray(head), dtype=torch.uint8), hidden))
    return split(data, session=id_.term, epoch=id_.epoch, inference=passing.round, schedule=0,
                 transfer=passing.stage * MAX_LANES + passing.number, value=0,
                 region=Region(0, data.nbytes), chunk_bytes=chunk_bytes)


class Arriving:
    """Puts hidden states of one plan together; `most` are the tokens of a lane."""

    def __init__(self, stages: int, width: int, dtype: torch.dtype, most: int) -> None:
        self._stages, self._width, self._dtype = stages, width, dtype
        self._most = MAX_DESCRIPTION + most * width * dtype.itemsize
        self._parts = Reassembler(self._expected, _OPEN_ROUNDS)

    def add(self, chunk: Chunk) -> Passing | None:
        """Return what is complete with this chunk; MalformedFrameError if it makes no sense."""
        data = self._parts.add(chunk)
        if data is None:
            return None
        stage, number = divmod(chunk.transfer, MAX_LANES)
        try:
            base, lanes = _HEAD.unpack_from(raw := bytes(data[:MAX_DESCRIPTION].numpy().data))
            lane, used = read_lane(raw[_HEAD.size:])
        except (struct.error, ValueError) as error:
            raise MalformedFrameError(f'hidden states: {error}', 'lane') from None
        rows = lane.tokens if stage < self._stages else len(lane.last_rows)
        hidden = data[_HEAD.size + used:]
        if hidden.nbytes != rows * self._width * self._dtype.itemsize \
                or not number < lanes <= MAX_LANES or base > chunk.inference:
            raise MalformedFrameError(f'{hidden.nbytes} bytes for {rows} tokens', 'size')
        return Passing(chunk.inference, stage, number, base, lanes, lane,
                       hidden.clone().view(self._dtype).view(rows, self._width))

    def _expected(self, chunk: Chunk) -> ExpectedTransfer | None:
        if len(chunk.shape) != 1 or not _HEAD.size < chunk.shape[0] <= self._most \
                or chunk.transfer // MAX_LANES > self._stages:
            return None
        return ExpectedTransfer(0, Region(0, chunk.shape[0]), torch.uint8, chunk.shape)
