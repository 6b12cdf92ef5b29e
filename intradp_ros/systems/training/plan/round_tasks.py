# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""
The tasks of a round for the event simulator: strict 1F1B, then sums of gradients and the norm.

Each stage does what `stage_actions` says, as the run-time does.  Several pipelines side by side
(HetPipe's virtual workers) sum over all owners of a layer.
"""
from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise

from intradp_ros.schedule.task_graph import ComputeTask, Task, TaskGraph, TransferTask
from intradp_ros.systems.training.plan.hybrid_plan import HybridStage
from intradp_ros.systems.training.plan.round_costs import (
    crossings,
    ring_delays,
    ring_moves,
    RoundCosts,
    Shares,
)
from intradp_ros.systems.training.plan.stage_actions import passes

Pipeline = tuple[Sequence[HybridStage], int]
"""Stages, and the micro-batches that go through them."""


def round_tasks(costs: RoundCosts, pipelines: Sequence[Pipeline]) -> TaskGraph:
    """
    Return the tasks of a round.

    :raises ValueError: if nothing joins two devices that must talk.
    """
    tasks: list[Task] = []
    last: dict[str, int] = {}
    resident: dict[str, float] = {}
    begun = 0
    for stages, micro_batches in pipelines:
        last |= _pipeline(costs, stages, range(begun, begun + micro_batches), tasks)
        begun += micro_batches
        resident |= {name: costs.fixed_bytes(stage.first, stage.last)
                     for stage in stages for name in stage.devices}
    summed: list[int] = []
    for names, nbytes in _owners(costs, pipelines).items():
        ring = []
        for (a, b), part in ring_moves(names).items():
            ring.append(len(tasks))
            tasks.append(TransferTask(a, b, part * nbytes, (last[a], last[b]), 'gradients'))
        if ring:
            summed += _hops(names, costs, ring, 1, tasks)
    norm = _hops(tuple(last), costs, sorted({*last.values(), *summed}), 0, tasks)
    tasks += [ComputeTask(name, seconds, norm, f'U {name}') for stages, _ in pipelines
              for stage in stages for name in stage.devices
              if (seconds := costs.step_seconds(name, stage.first, stage.last))]
    return TaskGraph(tuple(tasks), {}, resident)


def validation_tasks(costs: RoundCosts, stages: Sequence[HybridStage], samples: int,
                     reading: float) -> TaskGraph:
    """
    Return the tasks of a validation by samples that are dealt in parts as a round's are.

    The last stage reads them, too, where it is not the first: so many seconds each.  The memory
    is less than a round's: nothing is kept for a way back.
    """
    tasks: list[Task] = []
    dealt = [costs.dealt(stage) for stage in stages]
    barrier: tuple[int, ...] = ()
    for left in range(samples, 0, -costs.samples):
        ended = dict[str, int]()
        for number in range(costs.micro_batches):
            done = dict[str, int]()
            before: Shares = ()
            for k, stage in enumerate(stages):
                shares = _there(costs, stage, dealt[k], number, left)
                came: dict[str, list[int]] = defaultdict(list)
                for (a, b), moved in crossings(before, shares).items():
                    came[b].append(len(tasks))
                    tasks.append(TransferTask(
                        a, b, moved * costs.table.border_bytes[stage.first], (done[a],)))
                made = dict[str, int]()
                for name, count in shares:
                    seconds, _ = costs.seconds(name, stage.first, stage.last, count)
                    if 0 < k == len(stages) - 1:
                        seconds += count * reading / costs.topology.device(name).speed
                    made[name] = ended[name] = len(tasks)
                    after = (done[name],) if name in done else ()
                    tasks.append(ComputeTask(name, seconds, (*came[name], *after, *barrier),
                                             f'V{number}'))
                before, done = shares, made
        barrier = _hops([name for stage in stages for name in stage.devices], costs,
                        [*ended.values()], 0, tasks)
    return TaskGraph(tuple(tasks), {}, {})


def _there(costs: RoundCosts, stage: HybridStage, dealt: Sequence[Shares], number: int,
           left: int) -> Shares:
    """Return who computes how many samples in a pass of a part of which so many are there."""
    found, begin = [], 0 if stage.of_round else sum(costs.portions[:number])
    for name in stage.devices:
        own = [dict(one).get(name, 0) for one in dealt]
        before, count = sum(own[:number]) if stage.of_round else 0, own[number]
        if (there := min(count, left - begin - before)) > 0:
            found.append((name, there))
        begin += sum(own) if stage.of_round else count
    return tuple(found)


def _hops(names: Sequence[str], costs: RoundCosts, after: Sequence[int], gone: int,
          tasks: list[Task]) -> tuple[int, ...]:
    """Add the delays of a sum over devices, of which so many have gone; return what ends it."""
    if len(names) > 1:
        (a, b), count = ring_delays(names, costs.topology)
        for _ in range(count - gone if costs.topology.delay(a, b) else 0):
            tasks.append(TransferTask(a, b, 0.0, tuple(after), 'hop of a sum'))
            after = (len(tasks) - 1,)
    return tuple(after)


def _owners(costs: RoundCosts, pipelines: Sequence[Pipeline]) -> dict[tuple[str, ...], float]:
    """Return the bytes of parameters by the devices that have a copy."""
    borders = sorted({end for stages, _ in pipelines for stage in stages
                      for end in (stage.first, stage.last)})
    found: dict[tuple[str, ...], float] = defaultdict(float)
    for first, after in pairwise(borders):
        names = tuple(name for stages, _ in pipelines for stage in stages
                      if stage.first <= first < stage.last for name in stage.devices)
        found[names] += costs.summed_bytes(first, after)
    return found


def _pipeline(costs: RoundCosts, stages: Sequence[HybridStage], numbers: range,
              tasks: list[Task]) -> dict[str, int]:
    """Add the tasks of one pipeline, of these micro-batches; return the last of each device."""
    table = costs.table
    dealt = [costs.dealt(stage, numbers) for stage in stages]
    into = [[crossings(before, behind) if k else costs.image_moves(behind)
             for before, behind in zip(dealt[k - 1], dealt[k])] for k in range(len(stages))]
    todo = [passes(stage.warm_up, len(numbers)) for stage in stages]
    at = [0] * len(stages)
    done: dict[tuple[int, bool, int], dict[str, int]] = {}
    last: dict[str, int] = {}
    sent: dict[tuple[str, str], int] = {}  # images go one micro-batch after the other
    while any(place < len(steps) for place, steps in zip(at, todo)):
        before = list(at)
        for k, stage in enumerate(stages):
            while at[k] < len(todo[k]):
                back, batch = todo[k][at[k]].kind == 'B', todo[k][at[k]].micro_batch
                needs = (k + 1, True, batch) if back else (k - 1, False, batch)
                if 0 <= needs[0] < len(stages) and needs not in done:
                    break
                came: dict[str, list[int]] = defaultdict(list)
                if not back:
                    for (a, b), samples in into[k][batch].items():
                        after = (done[needs][a],) if k else (
                            (sent[a, b],) if (a, b) in sent else ())
                        if not k:
                            sent[a, b] = len(tasks)
                        came[b].append(len(tasks))
                        tasks.append(TransferTask(a, b, samples * table.border_bytes[stage.first],
                                                  after, f'value {k} {batch}'))
                elif k + 1 < len(stages):
                    nbytes = table.gradient_bytes[stages[k + 1].first]
                    for (a, b), samples in into[k + 1][batch].items():
                        came[a].append(len(tasks))
                        tasks.append(TransferTask(b, a, samples * nbytes, (done[needs][b],),
                                                  f'gradient {k + 1} {batch}'))
                made = done[k, back, batch] = {}
                for name, samples in dealt[k][batch]:
                    forward, backward = costs.seconds(name, stage.first, stage.last, samples)
                    index = made[name] = last[name] = len(tasks)
                    if back:
                        ahead = done[k, False, batch][name]
                        tasks.append(ComputeTask(name, backward, (*came[name], ahead),
                                                 f'B{batch} {k}'))
                        tasks[ahead] = replace(tasks[ahead], until=(index,))
                    else:
                        kept = samples * costs.sample_bytes(stage.first, stage.last)
                        tasks.append(ComputeTask(name, forward, tuple(came[name]),
                                                 f'F{batch} {k}', kept))
                at[k] += 1
        if at == before:
            raise ValueError('the stages wait for each other: K must not fall below 1')
    return last
