# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""
From a plan of stages to the schedules that run it, one for each route of a sample.

A value goes straight from the device that computes it to every other device
that reads it, once; what was computed twice would be the same.  Operators
run whole: nothing is split along the rows here.
"""
from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence

from intradp_ros.graph.operator_graph import OperatorGraph
from intradp_ros.schedule.schedule import Compute, Receive, Schedule, Send, Step, Transfer
from intradp_ros.schedule.stage_plan import PlanError, StagePlan
from intradp_ros.split.local_operator import SplitGraph
from intradp_ros.split.regions.region import Region


def lower_stages(split: SplitGraph, plan: StagePlan) -> tuple[Schedule, ...]:
    """
    Return the schedule of each of the plan's routes, in the order of `StagePlan.routes`.

    Every device of the plan and its source have a program in each schedule;
    it is empty where a route leaves the device out.  The source's program
    starts from the graph's inputs and ends with its outputs.

    :raises PlanError: if the plan orders a transfer that it does not have.
    """
    schedules = tuple(_lower(split, plan, route) for route in plan.routes())
    unknown = set(plan.leads) - {(t.value, t.source, t.target)
                                 for schedule in schedules for t in schedule.transfers}
    if unknown:
        value, source, target = min(unknown)
        raise PlanError(f'the plan orders a transfer of value {value} from {source} to {target}, '
                        'which it does not have')
    return schedules


def _lower(split: SplitGraph, plan: StagePlan, route: Sequence[str]) -> Schedule:
    place = {op: device for stage, device in zip(plan.stages, route) for op in stage.operators}
    transfers = tuple(Transfer(number, value, split.whole(value), source, target)
                      for number, (value, source, target) in enumerate(
                          _crossings(split.graph, plan, place)))
    programs: dict[str, list[Step]] = {name: [] for name in (plan.source, *plan.devices)}
    leaving: dict[int, list[Transfer]] = defaultdict(list)
    arriving: dict[tuple[str, int], Transfer] = {}
    for transfer in transfers:
        leaving[transfer.value].append(transfer)
        arriving[transfer.target, transfer.value] = transfer

    def take(device: str, value: int) -> None:
        if transfer := arriving.pop((device, value), None):
            programs[device].append(Receive(transfer.id))

    def hand_on(value: int) -> None:
        for transfer in leaving[value]:
            programs[transfer.source].append(Send(transfer.id))

    for value in split.graph.inputs:
        hand_on(value)
    for index in _order(plan):
        device, operator = place[index], split.graph.operators[index]
        for value in operator.inputs:
            take(device, value)
        programs[device].append(Compute(index, Region(0, split.operators[index].rows)))
        for output in operator.outputs:
            if output is not None:
                hand_on(output)
    for value in split.graph.output_values:
        take(plan.source, value)
    return Schedule(transfers, {name: tuple(steps) for name, steps in programs.items()})


def _order(plan: StagePlan) -> Iterator[int]:
    for stage in plan.stages:
        yield from stage.operators


def _crossings(graph: OperatorGraph, plan: StagePlan, place: dict[int, str],
               ) -> Iterator[tuple[int, str, str]]:
    """Yield value, source and target of what changes devices, in the order of its making."""
    home = dict.fromkeys(graph.inputs, plan.source)
    readers: dict[int, dict[str, None]] = defaultdict(dict)
    order = list(_order(plan))
    for index in order:
        home |= {v: place[index] for v in graph.operators[index].outputs if v is not None}
        for value in graph.operators[index].inputs:
            readers[value][place[index]] = None
    for value in graph.output_values:
        readers[value][plan.source] = None
    made = [*graph.inputs, *(v for index in order for v in graph.operators[index].outputs
                             if v is not None)]
    for value in made:
        for target in readers[value]:
            if target != home[value]:
                yield value, home[value], target
