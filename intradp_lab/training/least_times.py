# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""What rounds and recovery cannot beat here: the way of a few bytes, and of the layers moved."""
from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
import threading
import time
from typing import Any

import torch

from intradp_ros.cluster.plan_id import PlanId
from intradp_ros.systems.training.run.round_groups import Ends, join_group
from intradp_ros.systems.training.run.snapshots import Move


@dataclass(frozen=True)
class _OneMachine:
    """Devices that are threads of this process."""

    store: Any

    def ends(self, plan: PlanId, label: str, timeout: float) -> Ends:
        """Return the end of any of them."""
        from torch.distributed.distributed_c10d import PrefixStore
        return Ends('127.0.0.1', PrefixStore(f'{plan.term}.{plan.epoch}/{label}', self.store))


def measured_hop(trips: int = 30) -> float:
    """Return the seconds that a few bytes take from one group member to another here (median)."""
    from torch._C._distributed_c10d import HashStore
    ways, seconds = _OneMachine(HashStore()), list[float]()

    def member(name: str) -> None:
        group = join_group(ways, PlanId(0, 0), 'ab', name, name, 10.0)
        for trip in range(trips):
            begun = time.monotonic()
            for first in (True, False):
                if (name == 'a') == first:
                    group.send(torch.zeros(1), 'b' if first else 'a', trip)
                else:
                    group.wait(group.receive((1,), torch.float32, 'a' if first else 'b',
                                             trip)[1], '')
            seconds.append((time.monotonic() - begun) / 2)
        group.settle()
        group.close()
    other = threading.Thread(target=member, args=('b',))
    other.start()
    member('a')
    other.join()
    return sorted(seconds)[len(seconds) // 2]


def port_seconds(moved: Sequence[Move], sizes: Sequence[float], rate: float) -> float:
    """
    Return what moves take at least where each device sends and receives `rate` bytes a second.

    `sizes` are the bytes of layers; each travels with the momentum of its optimiser.
    """
    through: dict[tuple[str, str], float] = {}
    for move in moved:
        nbytes = sum(2 * sizes[layer] for layer in move.layers)
        for port in ((move.source, 'up'), (move.target, 'down')):
            through[port] = through.get(port, 0.0) + nbytes
    return max(through.values(), default=0.0) / rate
