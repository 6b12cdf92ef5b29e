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

from intradp_ros.planning.fleet_costs import FleetCosts
from intradp_ros.planning.placement_tasks import crossings, members, Piece, pieces, route
from intradp_ros.planning.planning_model import SOURCE
from intradp_ros.planning.training import stage_numbers, warm_up
from intradp_ros.schedule.list_order import list_starts, Window
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
    """Return when each task of each micro-batch starts with 1F1B; the way back is more urgent."""
    each = len(one.tasks)
    copies = [(batch, k) for batch in range(costs.batches) for k in range(each)]
    tasks = [replace(one.tasks[k], after=tuple(each * batch + before
                                               for before in one.tasks[k].after), until=())
             for batch, k in copies]
    urgency = [(not one.back.get(k, True), batch, k) for batch, k in copies]
    places = {(stage, one.tasks[k].device)  # type: ignore[union-attr]
              for k, stage in one.stage.items()}
    windows = [Window(
        warm_up(stage, stages, costs.batches),
        _rounds(costs, one, [k for k in _at(one, stage, device) if not one.back[k]]),
        _rounds(costs, one, [k for k in _at(one, stage, device) if one.back[k]]))
        for stage, device in sorted(places)]
    return dict(zip(copies, list_starts(tasks, costs.topology, urgency, windows)))


def _at(one: _Pattern, stage: int, device: str) -> list[int]:
    """Return the tasks of one micro-batch that a device computes of a stage."""
    return [k for k, number in one.stage.items() if number == stage
            and one.tasks[k].device == device]  # type: ignore[union-attr]


def _rounds(costs: FleetCosts, one: _Pattern, tasks: Sequence[int]) -> dict[int, int]:
    """Return the micro-batch of each copy of some tasks."""
    return {len(one.tasks) * batch + k: batch for batch in range(costs.batches) for k in tasks}
