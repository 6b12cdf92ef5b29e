# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""
The event simulator written again, slowly: looks at every task anew whenever anything happens.

No heaps, no groups of transfers: bytes left of each transfer, every chunk by
itself.
"""
from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
import math

from intradp_ros.cluster.topology import Topology
from intradp_ros.schedule.task_graph import ComputeTask, LoadTask, TaskGraph, TransferTask


@dataclass
class Chunk:
    """A piece of a transfer, the media that it has passed, and since when it waits."""

    task: int
    nbytes: float
    last: bool
    hop: int = 0
    ready: float = 0.0


class SlowSimulator:
    """Plays a graph; `start` and `finish` by task are what it finds."""

    def __init__(self, graph: TaskGraph, topology: Topology, chunk: float = 0.0) -> None:
        self.graph, self.topology, self.chunk = graph, topology, chunk
        self.start: dict[int, float] = {}
        self.finish: dict[int, float] = {}
        self.joined: dict[int, float] = {}
        self.ends: dict[int, float] = {}
        self.left: dict[int, float] = {}
        self.lines: dict[str, list[Chunk]] = {m.name: [] for m in topology.media}
        self.served: dict[str, tuple[Chunk, float]] = {}
        self.now = 0.0

    def run(self) -> SlowSimulator:
        """Play all tasks."""
        while len(self.finish) < len(self.graph.tasks):
            while any(act() for act in (self._end, self._join, self._enter, self._pass_on)):
                pass
            self._choose()
            if len(self.finish) < len(self.graph.tasks):
                self._advance()
        return self

    def _tasks(self) -> Iterator[int]:
        return iter(range(len(self.graph.tasks)))

    def _moved(self, index: int) -> TransferTask | LoadTask:
        task = self.graph.tasks[index]
        assert not isinstance(task, ComputeTask)
        return task

    def _path(self, index: int) -> tuple[str, ...]:
        task = self._moved(index)
        if isinstance(task, LoadTask):
            return (self.topology.device(task.device).disk,)
        return self.topology.path(task.source, task.target)

    def _end(self) -> bool:
        due = [k for k, then in self.ends.items() if then <= self.now]
        for k in due:
            self.finish[k] = self.ends.pop(k)
        return bool(due)

    def _join(self) -> bool:
        found = [k for k in self._tasks() if k not in self.joined and self._may_join(k)]
        for k in found:
            task = self.graph.tasks[k]
            self.joined[k] = self.now
            if isinstance(task, ComputeTask):
                self.start[k], self.ends[k] = self.now, self.now + task.seconds
        return bool(found)

    def _may_join(self, k: int) -> bool:
        task = self.graph.tasks[k]
        if self.now < self.graph.release.get(k, 0.0) or any(
                a not in self.finish for a in task.after):
            return False
        return not isinstance(task, ComputeTask) or all(
            other in self.finish for other, before in enumerate(self.graph.tasks[:k])
            if isinstance(before, ComputeTask) and before.device == task.device)

    def _enter(self) -> bool:
        """Let transfers move whose lead is over; in line they are from the first moment."""
        found = [k for k in self.joined if k not in self.start
                 and not isinstance(self.graph.tasks[k], ComputeTask)
                 and (self._begin(k) <= self.now or self.chunk > 0)
                 and k not in self.left]
        for k in found:
            task, path = self._moved(k), self._path(k)
            if task.nbytes == 0 or not path:
                self.start[k] = self._begin(k)
                self._through(k, self._begin(k))
                continue
            self.left[k] = task.nbytes
            if self.chunk > 0:
                count = max(1, math.ceil(task.nbytes / self.chunk))
                sizes = [min(self.chunk, task.nbytes)] * (count - 1)
                sizes.append(task.nbytes - sum(sizes))
                self.lines[path[0]] += [Chunk(k, size, number == count - 1, 0, self._begin(k))
                                        for number, size in enumerate(sizes)]
            else:
                self.start[k] = self.now
        return bool(found)

    def _begin(self, k: int) -> float:
        return self.joined[k] + getattr(self.graph.tasks[k], 'lead', 0.0)

    def _through(self, k: int, then: float) -> None:
        delay = sum(self.topology.medium(name).delay for name in self._path(k))
        self.ends[k] = then + delay + getattr(self.graph.tasks[k], 'lag', 0.0)

    def _pass_on(self) -> bool:
        done = [(name, chunk) for name, (chunk, then) in self.served.items() if then <= self.now]
        for name, chunk in done:
            del self.served[name]
            path, delay = self._path(chunk.task), self.topology.medium(name).delay
            chunk.hop, chunk.ready = chunk.hop + 1, self.now + delay
            if chunk.hop < len(path):
                self.lines[path[chunk.hop]].append(chunk)
            elif chunk.last:
                self.ends[chunk.task] = chunk.ready + getattr(
                    self.graph.tasks[chunk.task], 'lag', 0.0)
        return bool(done)

    def _choose(self) -> None:
        for name, line in self.lines.items():
            here = [c for c in line if c.hop == 0 or c.ready <= self.now]
            if name in self.served or not here:
                continue
            first = min(here, key=lambda c: (self._moved(c.task).priority,
                                             self.joined[c.task], c.task, c.hop))
            if first.ready <= self.now:
                line.remove(first)
                self.start.setdefault(first.task, self.now)
                taken = first.nbytes / self.topology.medium(name).bytes_per_second
                self.served[name] = first, self.now + taken

    def _advance(self) -> None:
        rates = {} if self.chunk > 0 else self._rates()
        times = [*self.ends.values(), *(then for _, then in self.served.values()),
                 *(c.ready for line in self.lines.values() for c in line),
                 *(self._begin(k) for k in self.joined if k not in self.start
                   and not isinstance(self.graph.tasks[k], ComputeTask)),
                 *(r for k, r in self.graph.release.items() if k not in self.joined)]
        flowing = {k: self.now + self.left[k] / rate for k, rate in rates.items()}
        then = min([t for t in times if t > self.now] + list(flowing.values()))
        for k, rate in rates.items():
            self.left[k] -= rate * (then - self.now)
            if flowing[k] <= then * (1 + 1e-14):
                self.left[k] = 0.0
                self._through(k, then)
        self.now = then

    def _rates(self) -> dict[int, float]:
        """Fill all transfers alike; those on the medium that is full first stay as they are."""
        rates: dict[int, float] = {}
        flows = [k for k, left in self.left.items() if left > 0]
        while len(rates) < len(flows):
            levels = {}
            for medium in self.topology.media:
                crossings = {k: self._path(k).count(medium.name) for k in flows}
                free = medium.bytes_per_second - sum(rates[k] * crossings[k] for k in rates)
                if count := sum(n for k, n in crossings.items() if k not in rates):
                    levels[medium.name] = free / count
            tight = min(levels, key=levels.__getitem__)
            rates |= {k: levels[tight] for k in flows
                      if k not in rates and tight in self._path(k)}
        return rates
