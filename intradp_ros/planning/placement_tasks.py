# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""From a placement to the tasks of several micro-batches, which the event simulator plays."""
from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from intradp_ros.planning.fleet_costs import FleetCosts
from intradp_ros.planning.planning_model import SOURCE, working_bytes
from intradp_ros.schedule.event_simulator import simulate
from intradp_ros.schedule.stage_tasks import StageTasks
from intradp_ros.schedule.task_graph import ComputeTask, LoadTask, Task, TaskGraph, TransferTask

#: A little more than needed, so that no rounding puts a micro-batch before the one it waits for.
ABOVE = 1 + 1e-9


@dataclass(frozen=True, slots=True)
class Piece:
    """Neighbouring nodes of one group that nothing enters or leaves between."""

    group: int
    nodes: tuple[int, ...]


def placement_tasks(costs: FleetCosts, placement: Sequence[int], batches: int = 1,
                    interval: float = 0.0) -> StageTasks:
    """
    Return the tasks of micro-batches that arrive at the source every `interval` seconds.

    A device takes the parts of several micro-batches in the order in which
    they would begin if each began one period after the one before.

    :raises ValueError: if nothing joins two devices that must talk.
    """
    placement = [int(group) for group in placement]
    one = _one_batch(costs, placement)
    alone = simulate(TaskGraph(tuple(one)), costs.topology)
    period = max((interval, *alone.busy.values(), *alone.in_use.values()))
    return _repeat(one, alone.start.tolist(), batches, interval, period * ABOVE,
                   _weights(costs, placement))


def held_tasks(costs: FleetCosts, placement: Sequence[int]) -> TaskGraph:
    """
    Return the tasks of one micro-batch with the values that devices hold, and their weights.

    :raises ValueError: if nothing joins two devices that must talk.
    """
    placement = [int(group) for group in placement]
    one = _holding(costs, placement, _one_batch(costs, placement))
    return TaskGraph(tuple(one), resident=_weights(costs, placement))


def _weights(costs: FleetCosts, placement: Sequence[int]) -> dict[str, float]:
    weights: dict[str, float] = defaultdict(float)
    for node, group in zip(costs.model.nodes, placement):
        for name in members(costs, group):
            weights[name] += node.weight_bytes
    return dict(weights)


def _holding(costs: FleetCosts, placement: Sequence[int], one: Sequence[Task]) -> list[Task]:
    """Return the tasks of a micro-batch, with the values that are held until they are used."""
    users: dict[int, list[int]] = defaultdict(list)
    for index, task in enumerate(one):
        for before in task.after:
            users[before].append(index)
    inputs = costs.samples * sum(f.nbytes for f in costs.model.flows if f.maker == SOURCE)
    left = _left_bytes(costs, placement)
    tasks, holders = list(one), []
    for index, task in enumerate(one[:-1]):
        until = tuple(users[index])
        if isinstance(task, TransferTask):
            nbytes = task.nbytes if index else inputs  # the first is the arrival at the source
            tasks[index] = replace(task, holds=nbytes, until=until)
        elif isinstance(task, ComputeTask) and (nbytes := left.get((task.device, task.name), 0.0)):
            holders.append(TransferTask(task.device, task.device, 0.0, (index,), '',
                                        holds=nbytes, until=until))
    end, shift = len(one) - 1, len(holders)

    return [replace(task, until=tuple(k + shift if k == end else k for k in task.until))
            if not isinstance(task, LoadTask) and end in task.until else task
            for task in (*tasks[:-1], *holders, tasks[-1])]


def _left_bytes(costs: FleetCosts, placement: Sequence[int]) -> dict[tuple[str, str], float]:
    """Return the bytes that each part of a micro-batch leaves for others, by device and name."""
    found: dict[tuple[str, str], float] = defaultdict(float)
    for piece in pieces(costs, placement):
        nbytes = sum(flow.nbytes for flow in costs.model.flows
                     if flow.maker in piece.nodes and not set(flow.readers) <= set(piece.nodes))
        for name, share in members(costs, piece.group).items():
            found[name, costs.model.nodes[piece.nodes[0]].name] += share * nbytes
    return found


def flow_name(number: int) -> str:
    """Return what transfers of the model's flow of that number are called."""
    return f'value {number}'


def members(costs: FleetCosts, group: int) -> dict[str, int]:
    """Return the devices of a group with their samples."""
    return {name: int(share) for name, share in zip(costs.topology.names, costs.groups[group])
            if share}


def pieces(costs: FleetCosts, placement: Sequence[int]) -> list[Piece]:
    """Return what devices run in one go, in order."""
    places = {SOURCE: costs.home} | dict(enumerate(placement))
    cuts = {k for k in range(1, len(placement)) if placement[k] != placement[k - 1]}
    for flow in costs.model.flows:
        away = [r for r in flow.readers if places[r] != places[flow.maker]]
        if away and flow.maker != SOURCE:
            cuts.add(flow.maker + 1)
        cuts.update(r for r in away if r != SOURCE)
    edges = [0, *sorted(cuts - {0, len(placement)}), len(placement)]
    return [Piece(placement[a], tuple(range(a, b))) for a, b in zip(edges, edges[1:])]


def _one_batch(costs: FleetCosts, placement: Sequence[int]) -> list[Task]:
    """Return the tasks of one micro-batch; the first is its arrival, the last its end."""
    tasks: list[Task] = [TransferTask(costs.source, costs.source, 0.0, name='arrival')]
    routes = {k: route(costs, group) for k, group in enumerate(placement)}
    routes[SOURCE] = [costs.source] * costs.samples
    made: dict[tuple[int, str], int] = {(SOURCE, costs.source): 0}
    brought: dict[tuple[int, str], list[int]] = defaultdict(list)

    def send(maker: int) -> None:
        for number, flow in enumerate(costs.model.flows):
            if flow.maker == maker:
                for (origin, target), samples in crossings(routes, maker, flow.readers).items():
                    brought[number, target].append(len(tasks))
                    tasks.append(TransferTask(origin, target, samples * flow.nbytes,
                                              (made[maker, origin],), flow_name(number)))

    send(SOURCE)
    for piece in pieces(costs, placement):
        read = {(number, flow.maker) for k in piece.nodes for number, flow in costs.read[k]}
        for name, share in members(costs, piece.group).items():
            after = {task for number, _ in read for task in brought[number, name]}
            after |= {made[maker, name] for _, maker in read if (maker, name) in made}
            seconds = float(sum(costs.seconds[k, piece.group, costs.topology.names.index(name)]
                                for k in piece.nodes))
            holds = share * working_bytes(costs.model, piece.nodes[0], piece.nodes[-1] + 1)
            index = len(tasks)
            made |= {(k, name): index for k in piece.nodes}
            tasks.append(ComputeTask(name, seconds, tuple(sorted(after - {index})),
                                     costs.model.nodes[piece.nodes[0]].name, holds))
        for k in piece.nodes:
            send(k)
    tasks.append(TransferTask(costs.source, costs.source, 0.0,
                              tuple(sorted(_results(costs, routes, made, brought))), 'end'))
    return tasks


def route(costs: FleetCosts, group: int) -> list[str]:
    """Return the device of each sample."""
    return [name for name, share in members(costs, group).items() for _ in range(share)]


def crossings(routes: dict[int, list[str]], maker: int, readers: Sequence[int],
               ) -> dict[tuple[str, str], int]:
    """Return how many samples of a value go from where to where, each once."""
    count: dict[tuple[str, str], int] = defaultdict(int)
    for sample, origin in enumerate(routes[maker]):
        for target in dict.fromkeys(routes[reader][sample] for reader in readers):
            if target != origin:
                count[origin, target] += 1
    return count


def _results(costs: FleetCosts, routes: dict[int, list[str]], made: dict[tuple[int, str], int],
             brought: dict[tuple[int, str], list[int]]) -> set[int]:
    """Return the tasks after which the source has all results."""
    after = {index for (maker, _), index in made.items() if maker != SOURCE}
    for number, flow in enumerate(costs.model.flows):
        if SOURCE in flow.readers:
            after.update(brought[number, costs.source])
    return after


def _repeat(one: Sequence[Task], starts: Sequence[float], batches: int, interval: float,
            period: float, weights: dict[str, float]) -> StageTasks:
    keys = sorted((batch * period + start, batch, index)
                  for batch in range(batches) for index, start in enumerate(starts))
    place = {(batch, index): number for number, (_, batch, index) in enumerate(keys)}
    tasks: list[Task] = []
    for _, batch, index in keys:
        task = one[index]
        after = tuple([place[batch, k] for k in task.after])
        until = tuple([place[batch, k] for k in task.until])
        if isinstance(task, ComputeTask):  # `replace` takes several times as long
            tasks.append(ComputeTask(task.device, task.seconds, after, task.name, task.holds,
                                     until))
        elif isinstance(task, TransferTask):
            tasks.append(TransferTask(task.source, task.target, task.nbytes, after, task.name,
                                      float(batch), task.lead, task.lag, task.holds, until))
        else:
            tasks.append(replace(task, after=after, until=until))
    arrivals = tuple(place[batch, 0] for batch in range(batches))
    release = {arrival: batch * interval for batch, arrival in enumerate(arrivals)}
    return StageTasks(TaskGraph(tuple(tasks), release, weights), arrivals,
                      tuple(place[batch, len(one) - 1] for batch in range(batches)))


def longest_tails(graph: TaskGraph, seconds: npt.NDArray[np.float64],
                  ) -> npt.NDArray[np.float64]:
    """
    Return the seconds from the end of each task to the end of the graph, on the longest way.

    `seconds` are those of each task alone.  A device's next task counts as
    one that waits.
    """
    tails = np.zeros(len(graph.tasks))
    following: dict[str, int] = {}
    for index in range(len(graph.tasks) - 1, -1, -1):
        task = graph.tasks[index]
        if isinstance(task, ComputeTask):
            later = following.get(task.device)
            if later is not None:
                tails[index] = max(tails[index], seconds[later] + tails[later])
            following[task.device] = index
        for earlier in task.after:
            tails[earlier] = max(tails[earlier], seconds[index] + tails[index])
    return tails
