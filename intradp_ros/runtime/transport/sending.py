# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""Handing transfers of one inference to a channel, and what to expect from the other side."""
from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
import time

import torch

from intradp_ros.runtime.transport.channel import Channel
from intradp_ros.runtime.transport.serial_executor import SerialExecutor
from intradp_ros.runtime.transport.timeline import Event
from intradp_ros.runtime.transport.traffic import Traffic
from intradp_ros.schedule.schedule import Schedule
from intradp_ros.split.local_operator import SplitGraph
from intradp_ros.wire.chunking import ExpectedTransfer
from intradp_ros.wire.codecs.names import NONE
from intradp_ros.wire.codecs.registry import available
from intradp_ros.wire.cutting import cut_into_chunks
from intradp_ros.wire.frames import Stamp


def common_encodings(theirs: object) -> frozenset[str]:
    """
    Return the encodings that both sides have, from what the other says that it has.

    Anything but a list of names counts as none: all values then cross plain.
    """
    named = theirs if isinstance(theirs, list) else []
    return available() & {name for name in named if isinstance(name, str)}


def expected_transfer(graph: SplitGraph, schedule: Schedule, index: int, target: str,
                      ) -> ExpectedTransfer | None:
    """Return what a transfer of a schedule carries; None if `target` awaits no such transfer."""
    if not 0 <= index < len(schedule.transfers) or schedule.transfers[index].target != target:
        return None
    transfer = schedule.transfers[index]
    value = graph.graph.values[transfer.value]
    shape = graph.shape(transfer.value, transfer.region.rows)
    return ExpectedTransfer(value.id, transfer.region, value.dtype, shape, transfer.encoding)


def describe_transfers(graph: SplitGraph, schedule: Schedule) -> tuple[str, ...]:
    """Name every transfer by its value and rows, for timelines."""
    return tuple(f'{graph.graph.values[t.value].name}[{t.region.start}:{t.region.stop}]'
                 for t in schedule.transfers)


@dataclass(frozen=True)
class SendContext:
    """
    A side's way to the other (`server` is the one): what transfers of all inferences go through.

    `encodings` are those that both sides have; values whose encoding is not
    among them cross plain.  `ratios` keeps which part of its bytes an encoding
    has left of a value the last time.
    """

    channel: Channel
    session: int
    executor: SerialExecutor
    traffic: Traffic
    encodings: frozenset[str] = frozenset()
    server: int = 0
    ratios: dict[tuple[int, str], float] = field(default_factory=dict)


@dataclass
class Sender:
    """
    Cuts the transfers of one inference into chunks and queues them; counts their bytes.

    Where a schedule has encodings, all of it is done by the executor, so that
    the program goes on meanwhile and transfers keep their order.  `lane` and
    `names` are those of the timeline, as for `Arrivals`; `failed` is called
    with the reason if a transfer cannot be encoded.
    """

    way: SendContext
    schedule: Schedule
    epoch: int
    inference: int
    schedule_id: int
    stamp: Stamp
    lane: str
    names: Sequence[str]
    failed: Callable[[str], None]
    nbytes: int = field(default=0, init=False)
    events: list[Event] = field(default_factory=list, init=False)
    _stopped: bool = field(default=False, init=False)

    def __post_init__(self) -> None:
        """Find out whether anything is to be encoded."""
        self._encodes = any(t.encoding in self.way.encodings for t in self.schedule.transfers)

    def __call__(self, index: int, tensor: torch.Tensor) -> None:
        """Queue one transfer."""
        now = time.monotonic()
        self.events.append(Event(self.lane, 'queued', self.names[index], now, now))
        if self._encodes:
            self.way.executor.put(partial(self._send_or_fail, index, tensor))
        else:
            self._send(index, tensor)

    def stop(self) -> None:
        """Send nothing more, and drop what still waits to be sent."""
        self._stopped = True
        self.way.channel.abandon(self.way.session, self.inference)

    def _send_or_fail(self, index: int, tensor: torch.Tensor) -> None:
        try:
            self._send(index, tensor)
        except Exception as error:  # out of memory, say: the program must not wait for ever
            self.failed(f'transfer {index}: {type(error).__name__}: {error}')

    def _send(self, index: int, tensor: torch.Tensor) -> None:
        transfer, way = self.schedule.transfers[index], self.way
        encoding = transfer.encoding if transfer.encoding in way.encodings else NONE
        known, before = (transfer.value, encoding), self.nbytes
        for chunk in cut_into_chunks(
                tensor, session=way.session, epoch=self.epoch, inference=self.inference,
                schedule=self.schedule_id, transfer=index, value=transfer.value,
                region=transfer.region, chunk_bytes=way.channel.chunk_bytes_of(way.session),
                stamp=self.stamp, encoding=encoding, server=way.server,
                ratio=way.ratios.get(known, 1.0)):
            if self._stopped:
                return
            self.nbytes += way.traffic.count(chunk)
            way.channel.send(chunk)
        if encoding != NONE and tensor.nbytes:
            way.ratios[known] = (self.nbytes - before) / tensor.nbytes
