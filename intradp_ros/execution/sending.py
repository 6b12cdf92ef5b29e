# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""Handing transfers of one inference to a channel, and what to expect from the other side."""
from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
import time

import torch

from intradp_ros.execution.channel import Channel
from intradp_ros.execution.timeline import Event
from intradp_ros.operators.local_operator import SplitGraph
from intradp_ros.planning.schedule import Schedule
from intradp_ros.wire.chunking import ExpectedTransfer
from intradp_ros.wire.cutting import split
from intradp_ros.wire.frames import Stamp

PROTOCOL = 1


def expected_transfer(graph: SplitGraph, schedule: Schedule, index: int, target: str,
                      ) -> ExpectedTransfer | None:
    """Return what a transfer of a schedule carries; None if `target` awaits no such transfer."""
    if not 0 <= index < len(schedule.transfers) or schedule.transfers[index].target != target:
        return None
    transfer = schedule.transfers[index]
    value = graph.graph.values[transfer.value]
    shape = graph.shape(transfer.value, transfer.region.rows)
    return ExpectedTransfer(value.id, transfer.region, value.dtype, shape)


def describe_transfers(graph: SplitGraph, schedule: Schedule) -> tuple[str, ...]:
    """Name every transfer by its value and rows, for timelines."""
    return tuple(f'{graph.graph.values[t.value].name}[{t.region.start}:{t.region.stop}]'
                 for t in schedule.transfers)


@dataclass
class Sender:
    """
    Cuts the transfers of one inference into chunks and queues them; counts their bytes.

    `lane` and `names` are those of the timeline, as for `Arrivals`.
    """

    channel: Channel
    schedule: Schedule
    session: int
    epoch: int
    inference: int
    schedule_id: int
    stamp: Stamp
    lane: str
    names: Sequence[str]
    nbytes: int = field(default=0, init=False)
    events: list[Event] = field(default_factory=list, init=False)

    def __call__(self, index: int, tensor: torch.Tensor) -> None:
        """Queue one transfer."""
        transfer = self.schedule.transfers[index]
        self.nbytes += tensor.numel() * tensor.element_size()
        now = time.monotonic()
        self.events.append(Event(self.lane, 'queued', self.names[index], now, now))
        for chunk in split(
                tensor, session=self.session, epoch=self.epoch, inference=self.inference,
                schedule=self.schedule_id, transfer=index, value=transfer.value,
                region=transfer.region, chunk_bytes=self.channel.chunk_bytes, stamp=self.stamp):
            self.channel.send(chunk)
