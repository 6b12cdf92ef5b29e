# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""
From a placement to the tasks of a training round: 1F1B, then gradients summed in replica groups.

A stage is neighbours of one group.  It lets at most 2(P-p)-1 micro-batches go
forward before the first comes back (Asteroid's warm-up), and takes a
backward pass before a forward one.  Values that cross to another device have
a gradient that crosses back.  A sample goes forward and backward on the same
devices, which keep its activations meanwhile.
"""
from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from heapq import heappop, heappush

from intradp_ros.planning.fleet_costs import FleetCosts
from intradp_ros.planning.placement_tasks import crossings, members, Piece, pieces, route
from intradp_ros.planning.planning_model import SOURCE
from intradp_ros.planning.training import stage_numbers, warm_up
from intradp_ros.schedule.stage_tasks import StageTasks
from intradp_ros.schedule.task_graph import ComputeTask, Task, TaskGraph, TransferTask


@dataclass
class _Pattern:
    """
    The tasks of one micro-batch; `stage` and `back` (whether it is backward) of computing ones.

    `forward` and `backward` name the task of a piece on a device.
    """

    tasks: list[Task] = field(default_factory=list)
    stage: dict[int, int] = field(default_factory=dict)
    back: dict[int, bool] = field(default_factory=dict)
    forward: dict[tuple[int, str], int] = field(default_factory=dict)
    backward: dict[tuple[int, str], int] = field(default_factory=dict)

    def add(self, task: Task) -> int:
        self.tasks.append(task)
        return len(self.tasks) - 1


def training_tasks(costs: FleetCosts, placement: Sequence[int]) -> StageTasks:
    """
    Return the tasks of a round of `costs.batches` micro-batches, which are all there at its start.

    Raises
    ------
    ValueError
        If nothing joins two devices that must talk.

    """
    placement = [int(group) for group in placement]
    one = _one_batch(costs, placement)
    starts = _one_forward_one_backward(costs, one, max(stage_numbers(placement)) + 1)
    keys = sorted((start, batch, index) for (batch, index), start in starts.items())
    place = {(batch, index): number for number, (_, batch, index) in enumerate(keys)}
    tasks = [_named(one.tasks[index], batch, place) for _, batch, index in keys]
    last = {stage: [place[batch, k] for batch in range(costs.batches)
                    for k in one.back if one.back[k] and one.stage[k] == stage]
            for stage in set(one.stage.values())}
    tasks += _sums(costs, placement, last, tasks)
    source = costs.source
    tasks.append(TransferTask(source, source, 0.0, tuple(range(len(tasks))), 'end'))
    return StageTasks(TaskGraph(tuple(tasks), {}, _resident(costs, placement)), (place[0, 0],),
                      (len(tasks) - 1,))


def _named(task: Task, batch: int, place: Mapping[tuple[int, int], int]) -> Task:
    task = replace(task, after=tuple(place[batch, k] for k in task.after))
    if isinstance(task, TransferTask):
        return replace(task, priority=float(batch))
    if isinstance(task, ComputeTask):
        return replace(task, until=tuple(place[batch, k] for k in task.until))
    return task


def _resident(costs: FleetCosts, placement: Sequence[int]) -> dict[str, float]:
    held: dict[str, float] = defaultdict(float)
    for nbytes, group in zip(costs.weight_bytes.tolist(), placement):
        for name in members(costs, group):
            held[name] += nbytes
    return dict(held)


def _one_batch(costs: FleetCosts, placement: Sequence[int]) -> _Pattern:
    p = _Pattern()
    p.add(TransferTask(costs.source, costs.source, 0.0, name='arrival'))
    parts, stages = pieces(costs, placement), stage_numbers(placement)
    routes = {k: route(costs, group) for k, group in enumerate(placement)}
    routes[SOURCE] = [costs.source] * costs.samples
    home = {node: number for number, part in enumerate(parts) for node in part.nodes}
    came: dict[tuple[int, str], list[int]] = defaultdict(list)
    crossed: list[tuple[int, str, str, float]] = []

    def send(makers: Sequence[int]) -> None:
        for number, flow in enumerate(costs.model.flows):
            if flow.maker not in makers:
                continue
            readers = [r for r in flow.readers if r != SOURCE]  # no results in training
            for (a, b), samples in crossings(routes, flow.maker, readers).items():
                before = 0 if flow.maker == SOURCE else p.forward[home[flow.maker], a]
                came[number, b].append(p.add(TransferTask(
                    a, b, samples * flow.nbytes, (before,), f'value {number}')))
                if flow.maker != SOURCE:
                    crossed.append((number, a, b, samples * flow.nbytes))

    send([SOURCE])
    for number, part in enumerate(parts):
        _forward(costs, p, parts, number, stages[part.nodes[0]], home, came)
        send(part.nodes)
    _backward(costs, p, parts, stages, home, crossed)
    return p


def _forward(costs: FleetCosts, p: _Pattern, parts: Sequence[Piece], number: int, stage: int,
             home: Mapping[int, int], came: Mapping[tuple[int, str], list[int]]) -> None:
    part = parts[number]
    read = {(flow, value.maker) for k in part.nodes for flow, value in costs.read[k]}
    for name, share in members(costs, part.group).items():
        after = {task for flow, _ in read for task in came.get((flow, name), ())}
        after |= {p.forward[home[maker], name] for _, maker in read
                  if maker != SOURCE and home[maker] != number
                  and (home[maker], name) in p.forward}
        if any(maker == SOURCE for _, maker in read) and name == costs.source:
            after.add(0)
        kept = share * float(sum(costs.kept_bytes[k] for k in part.nodes))
        index = p.add(ComputeTask(name, _seconds(costs, costs.forward, part, name),
                                  tuple(sorted(after)), costs.model.nodes[part.nodes[0]].name,
                                  kept))
        p.forward[number, name], p.stage[index], p.back[index] = index, stage, False


def _backward(costs: FleetCosts, p: _Pattern, parts: Sequence[Piece], stages: Sequence[int],
              home: Mapping[int, int], crossed: Sequence[tuple[int, str, str, float]]) -> None:
    """Add the way back: the pieces in reverse, and a gradient for each value that crossed."""
    back: dict[tuple[int, str], set[int]] = defaultdict(set)
    for number in range(len(parts) - 1, -1, -1):
        part = parts[number]
        readers = {home[r] for k in part.nodes for flow in costs.model.flows
                   if flow.maker == k for r in flow.readers if r != SOURCE} - {number}
        for name in members(costs, part.group):
            ahead = p.forward[number, name]
            after = {ahead} | back[number, name] | {
                p.backward[r, name] for r in readers if (r, name) in p.backward}
            index = p.add(ComputeTask(
                name, _seconds(costs, costs.backward, part, name), tuple(sorted(after)),
                f'{costs.model.nodes[part.nodes[0]].name} back'))
            p.backward[number, name] = index
            p.stage[index], p.back[index] = stages[part.nodes[0]], True
            p.tasks[ahead] = replace(p.tasks[ahead], until=(index,))
        for flow, a, b, nbytes in crossed:
            ends = {home[r] for r in costs.model.flows[flow].readers if r != SOURCE}
            there = {r for r in ends if (r, b) in p.forward}
            if there and min(there) == number:  # its last reader there on the way back
                maker = home[costs.model.flows[flow].maker]
                after = {p.backward[r, b] for r in there}
                back[maker, a].add(p.add(TransferTask(
                    b, a, nbytes, tuple(sorted(after)), f'gradient {flow}')))


def _seconds(costs: FleetCosts, table: object, part: Piece, name: str) -> float:
    device = costs.topology.names.index(name)
    return float(sum(table[k, part.group, device] for k in part.nodes))  # type: ignore[index]


def _sums(costs: FleetCosts, placement: Sequence[int], last: Mapping[int, Sequence[int]],
          tasks: Sequence[Task]) -> list[Task]:
    """Return the transfers by which the replicas of each stage sum their gradients, in a ring."""
    stages, found = stage_numbers(placement), []
    for stage in sorted(set(stages)):
        nodes = [k for k, number in enumerate(stages) if number == stage]
        names = list(members(costs, placement[nodes[0]]))
        nbytes = sum(costs.model.nodes[k].weight_bytes for k in nodes)
        part = 2 * (len(names) - 1) / len(names) * nbytes
        for one, other in zip(names, [*names[1:], names[0]]):
            if one != other and part:
                after = tuple(k for k in last[stage]
                              if getattr(tasks[k], 'device', '') in (one, other))
                found.append(TransferTask(one, other, part, after, f'gradients {stage}',
                                          float(costs.batches)))
    return list(found)


def _one_forward_one_backward(costs: FleetCosts, one: _Pattern, stages: int,
                              ) -> dict[tuple[int, int], float]:
    """Return when each task of each micro-batch begins if every transfer has its path alone."""
    return _Player(costs, one, stages).play()


class _Player:
    """Plays a round with 1F1B; a device that is free takes what is ready, the way back first."""

    def __init__(self, costs: FleetCosts, one: _Pattern, stages: int) -> None:
        self._costs, self._one = costs, one
        self._limit = [warm_up(stage, stages, costs.batches) for stage in range(stages)]
        self._waits = {(batch, k): len(task.after) for batch in range(costs.batches)
                       for k, task in enumerate(one.tasks)}
        self._followers: dict[int, list[int]] = defaultdict(list)
        for k, task in enumerate(one.tasks):
            for before in task.after:
                self._followers[before].append(k)
        self._left: dict[tuple[int, str], list[int]] = defaultdict(
            lambda: [0] * costs.batches)
        for k, back in one.back.items():
            if back:
                for batch in range(costs.batches):
                    device = one.tasks[k].device  # type: ignore[union-attr]
                    self._left[one.stage[k], device][batch] += 1
        self._ready: dict[str, list[tuple[int, int]]] = defaultdict(list)
        self._taken: set[str] = set()
        self._events: list[tuple[float, int, int]] = []
        self._starts: dict[tuple[int, int], float] = {}

    def play(self) -> dict[tuple[int, int], float]:
        for batch in range(self._costs.batches):
            for k, task in enumerate(self._one.tasks):
                if not task.after:
                    self._arm(batch, k, 0.0)
        self._choose(0.0)
        while self._events:
            now, batch, k = heappop(self._events)
            self._finish(batch, k, now)
            while self._events and self._events[0][0] <= now:
                _, batch, k = heappop(self._events)
                self._finish(batch, k, now)
            self._choose(now)
        return self._starts

    def _arm(self, batch: int, k: int, now: float) -> None:
        task = self._one.tasks[k]
        if isinstance(task, ComputeTask):
            self._ready[task.device].append((batch, k))
            return
        self._starts[batch, k] = now
        alone = 0.0
        if isinstance(task, TransferTask) and task.source != task.target:
            topology = self._costs.topology
            alone = (task.nbytes / topology.rate(task.source, task.target)
                     + topology.delay(task.source, task.target))
        heappush(self._events, (now + alone, batch, k))

    def _finish(self, batch: int, k: int, now: float) -> None:
        task = self._one.tasks[k]
        if isinstance(task, ComputeTask):
            self._taken.discard(task.device)
            if self._one.back[k]:
                self._left[self._one.stage[k], task.device][batch] -= 1
        for other in self._followers[k]:
            self._waits[batch, other] -= 1
            if not self._waits[batch, other]:
                self._arm(batch, other, now)

    def _choose(self, now: float) -> None:
        for device, ready in self._ready.items():
            if device in self._taken:
                continue
            may = [(not self._one.back[k], batch, k) for batch, k in ready
                   if self._one.back[k] or self._has_room(batch, k, device)]
            if may:
                _, batch, k = min(may)
                ready.remove((batch, k))
                self._taken.add(device)
                self._starts[batch, k] = now
                seconds = self._one.tasks[k].seconds  # type: ignore[union-attr]
                heappush(self._events, (now + seconds, batch, k))

    def _has_room(self, batch: int, k: int, device: str) -> bool:
        """Tell whether a stage may take one more micro-batch forward."""
        stage = self._one.stage[k]
        done = sum(left == 0 for left in self._left[stage, device])
        return batch < done + self._limit[stage]
