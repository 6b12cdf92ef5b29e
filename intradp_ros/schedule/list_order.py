# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""
The order of each device by list scheduling: what is free takes the most urgent task that is ready.

The event simulator plays tasks in a given order; this finds one.  Transfers count as if each had
its path alone, so that the order does not depend on what else is on the media.
"""
from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from heapq import heappop, heappush

from intradp_ros.cluster.topology import Topology
from intradp_ros.schedule.task_graph import ComputeTask, Task, TransferTask


@dataclass(frozen=True)
class Window:
    """
    How many rounds (micro-batches) may be open at once, as of a stage on a device.

    A task in `opens` (its round by its index) may start if its round is below the
    number of rounds that are closed and `limit`; a round is closed when all of its tasks in
    `closes` have ended.
    """

    limit: int
    opens: Mapping[int, int]
    closes: Mapping[int, int]


def list_starts(tasks: Sequence[Task], topology: Topology, urgency: Sequence[tuple[int, ...]],
                windows: Sequence[Window] = ()) -> list[float]:
    """
    Return the seconds at which tasks start; infinite for those that never may.

    A device takes one task at a time, of those that are ready and may start the one of the
    smallest `urgency`.

    Raises
    ------
    ValueError
        If nothing joins two devices between which a task moves bytes.

    """
    return _Play(tasks, topology, urgency, windows).starts()


class _Play:
    """Devices that are free, tasks that are ready, and the ends to come."""

    def __init__(self, tasks: Sequence[Task], topology: Topology,
                 urgency: Sequence[tuple[int, ...]], windows: Sequence[Window]) -> None:
        self._tasks, self._topology, self._urgency = tasks, topology, urgency
        self._waits = [len(task.after) for task in tasks]
        self._followers: dict[int, list[int]] = defaultdict(list)
        for index, task in enumerate(tasks):
            for before in task.after:
                self._followers[before].append(index)
        self._windows = windows
        self._opens = {index: (window, round_) for window, found in enumerate(windows)
                       for index, round_ in found.opens.items()}
        self._closes = {index: (window, round_) for window, found in enumerate(windows)
                        for index, round_ in found.closes.items()}
        self._left: list[dict[int, int]] = [defaultdict(int) for _ in windows]
        for window, round_ in self._closes.values():
            self._left[window][round_] += 1
        self._closed = [0] * len(windows)
        self._ready: dict[str, list[int]] = defaultdict(list)
        self._taken: set[str] = set()
        self._ends: list[tuple[float, int]] = []
        self._starts = [float('inf')] * len(tasks)

    def starts(self) -> list[float]:
        for index, task in enumerate(self._tasks):
            if not task.after:
                self._arm(index, 0.0)
        self._choose(0.0)
        while self._ends:
            now = self._ends[0][0]
            while self._ends and self._ends[0][0] <= now:
                self._finish(heappop(self._ends)[1], now)
            self._choose(now)
        return self._starts

    def _arm(self, index: int, now: float) -> None:
        task = self._tasks[index]
        if isinstance(task, ComputeTask):
            self._ready[task.device].append(index)
            return
        self._starts[index] = now
        alone = 0.0
        if isinstance(task, TransferTask) and task.source != task.target:
            alone = (task.nbytes / self._topology.rate(task.source, task.target)
                     + self._topology.delay(task.source, task.target))
        heappush(self._ends, (now + alone, index))

    def _finish(self, index: int, now: float) -> None:
        task = self._tasks[index]
        if isinstance(task, ComputeTask):
            self._taken.discard(task.device)
        if index in self._closes:
            window, round_ = self._closes[index]
            self._left[window][round_] -= 1
            self._closed[window] += not self._left[window][round_]
        for other in self._followers[index]:
            self._waits[other] -= 1
            if not self._waits[other]:
                self._arm(other, now)

    def _choose(self, now: float) -> None:
        for device, ready in self._ready.items():
            if device in self._taken:
                continue
            if may := [index for index in ready if self._may_start(index)]:
                index = min(may, key=self._urgency.__getitem__)
                ready.remove(index)
                self._taken.add(device)
                self._starts[index] = now
                seconds = self._tasks[index].seconds  # type: ignore[union-attr]
                heappush(self._ends, (now + seconds, index))

    def _may_start(self, index: int) -> bool:
        if index not in self._opens:
            return True
        window, round_ = self._opens[index]
        return round_ < self._closed[window] + self._windows[window].limit
