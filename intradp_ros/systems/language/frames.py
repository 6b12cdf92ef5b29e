# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""
Hidden states between devices, as chunks and back.

`inference` is the round, `transfer` names stage and lane.  A round's number is never used
again; `base` is the first round since requests were last computed anew, so that who
still waits for an older round gives it up.
"""
from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
import struct

import torch
from torch import Tensor

from intradp_ros.cluster.plan_id import PlanId
from intradp_ros.core.limits import MAX_SECONDS
from intradp_ros.split.regions.region import Region
from intradp_ros.systems.language.lanes import Lane, lane_bytes, PAGE, read_lane
from intradp_ros.systems.language.manifest import COMPUTED, Manifest, MAX_LAYERS
from intradp_ros.wire.chunking import ExpectedTransfer, Reassembler
from intradp_ros.wire.cutting import cut_into_chunks
from intradp_ros.wire.frames import Chunk, MalformedFrameError

MAX_LANES = 64
#: Bytes of the lane's description in front of the hidden states.
MAX_DESCRIPTION = 1 << 20
_OPEN_ROUNDS = 8
_HEAD = struct.Struct('<QHB')
_CACHE_HEAD = struct.Struct('<QI')
#: What the `value` of a chunk says that it carries.
_HIDDEN, _CACHE = 0, 1


@dataclass(frozen=True, slots=True)
class Passing:
    """
    A lane of a round on its way to a stage; `hidden` is tokens x width.

    `waits` are the seconds that each participant has waited for its disk in this round.
    """

    round: int  # noqa: A003
    stage: int
    number: int
    base: int
    lanes: int
    step: int
    lane: Lane
    hidden: Tensor
    waits: tuple[float, ...] = ()


@dataclass(frozen=True, slots=True)
class MovedCache:
    """Keys and values (heads x tokens x dim) of a layer that moves, of rounds since `base`."""

    layer: int
    base: int
    keys: Tensor
    values: Tensor


def to_chunks(id_: PlanId, passing: Passing, chunk_bytes: int) -> Iterator[Chunk]:
    """Yield the chunks of a lane's hidden states."""
    head = _HEAD.pack(passing.base, passing.lanes, passing.step) \
        + struct.pack(f'<{len(passing.waits)}f', *passing.waits) + lane_bytes(passing.lane)
    hidden = passing.hidden.contiguous().view(-1).view(torch.uint8)
    data = torch.cat((torch.frombuffer(bytearray(head), dtype=torch.uint8), hidden))
    return cut_into_chunks(
        data, session=id_.term, epoch=id_.epoch, inference=passing.round, schedule=0,
        transfer=passing.stage * MAX_LANES + passing.number, value=_HIDDEN,
        region=Region(0, data.nbytes), chunk_bytes=chunk_bytes)


def cache_chunks(id_: PlanId, moved: MovedCache, chunk_bytes: int) -> Iterator[Chunk]:
    """Yield the chunks of a layer's keys and values."""
    head = _CACHE_HEAD.pack(moved.base, moved.keys.shape[1])
    data = torch.cat((torch.frombuffer(bytearray(head), dtype=torch.uint8), *(
        part.contiguous().view(-1).view(torch.uint8) for part in (moved.keys, moved.values))))
    return cut_into_chunks(
        data, session=id_.term, epoch=id_.epoch, inference=moved.layer, schedule=0, transfer=0,
        value=_CACHE, region=Region(0, data.nbytes), chunk_bytes=chunk_bytes)


class Arriving:
    """Puts together what comes for one plan; `most` are the tokens of a lane."""

    def __init__(self, manifest: Manifest, stages: int, participants: int, pages: int,
                 most: int) -> None:
        self._stages, self._manifest = stages, manifest
        self._waits = struct.Struct(f'<{participants}f')
        self._most = MAX_DESCRIPTION + most * manifest.hidden_bytes
        self._tokens = pages * PAGE
        self._parts = Reassembler(self._expected, _OPEN_ROUNDS)
        self._caches = Reassembler(self._expected_cache, MAX_LAYERS)

    def add(self, chunk: Chunk) -> Passing | MovedCache | None:
        """Return what is complete with this chunk; MalformedFrameError if it makes no sense."""
        if chunk.value == _CACHE:
            return self._cache(chunk)
        data = self._parts.add(chunk)
        if data is None:
            return None
        stage, number = divmod(chunk.transfer, MAX_LANES)
        width = self._manifest.width
        try:
            base, lanes, step = _HEAD.unpack_from(
                raw := bytes(data[:MAX_DESCRIPTION].numpy().data))
            waits = self._waits.unpack_from(raw, _HEAD.size)
            begin = _HEAD.size + self._waits.size
            lane, used = read_lane(raw[begin:])
        except (struct.error, ValueError) as error:
            raise MalformedFrameError(f'hidden states: {error}', 'lane') from None
        rows = lane.tokens if stage < self._stages else len(lane.last_rows)
        hidden = data[begin + used:]
        if hidden.nbytes != rows * self._manifest.hidden_bytes \
                or not number < lanes <= MAX_LANES or base > chunk.inference \
                or not all(0 <= seconds < MAX_SECONDS for seconds in waits):
            raise MalformedFrameError(f'{hidden.nbytes} bytes for {rows} tokens', 'size')
        return Passing(chunk.inference, stage, number, base, lanes, step, lane,
                       hidden.clone().view(COMPUTED).view(rows, width), waits)

    def _cache(self, chunk: Chunk) -> MovedCache | None:
        data = self._caches.add(chunk)
        if data is None:
            return None
        base, tokens = _CACHE_HEAD.unpack_from(bytes(data[:_CACHE_HEAD.size].numpy().data))
        both, known = data[_CACHE_HEAD.size:], self._manifest
        if tokens > self._tokens or both.nbytes != tokens * known.kv_bytes:
            raise MalformedFrameError(f'{both.nbytes} bytes for {tokens} tokens', 'size')
        keys, values = both.clone().view(COMPUTED).view(2, known.kv_heads, tokens,
                                                           known.head_dim)
        return MovedCache(chunk.inference, base, keys, values)

    def _expected(self, chunk: Chunk) -> ExpectedTransfer | None:
        if chunk.transfer // MAX_LANES > self._stages:
            return None
        return _flat(chunk, _HIDDEN, _HEAD.size, self._most)

    def _expected_cache(self, chunk: Chunk) -> ExpectedTransfer | None:
        if chunk.transfer or chunk.inference >= self._manifest.layers:
            return None
        return _flat(chunk, _CACHE, _CACHE_HEAD.size - 1,
                     _CACHE_HEAD.size + self._tokens * self._manifest.kv_bytes)


def _flat(chunk: Chunk, value: int, least: int, most: int) -> ExpectedTransfer | None:
    if len(chunk.shape) != 1 or not least < chunk.shape[0] <= most:
        return None
    return ExpectedTransfer(value, Region(0, chunk.shape[0]), torch.uint8, chunk.shape)
