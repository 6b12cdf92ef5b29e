# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""
Stages as a user writes them, and the plan that follows: cuts given, or by the devices' speed.

``a,b*2+c,d@30`` are three stages: on a, on b and c (b takes two samples of
three), and on d.  ``@30`` ends a stage before operator 30; stages without it
divide what lies between so that each takes equally long on its devices.
"""
from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from math import lcm
import re

from intradp_ros.graph.operator_graph import OperatorGraph
from intradp_ros.schedule.stage_plan import MAX_SAMPLES, Member, PlanError, Stage, StagePlan
from intradp_ros.split.checks.flops import operator_flops

_STAGE = re.compile(r'([^@*+,\s]+(?:\*\d+)?(?:\+[^@*+,\s]+(?:\*\d+)?)*)(?:@(\d+))?')


@dataclass(frozen=True, slots=True)
class StageCut:
    """Who runs a stage (samples are shares), and before which operator it ends, if said."""

    members: tuple[Member, ...]
    stop: int | None = None


def parse_stages(text: str) -> tuple[StageCut, ...]:
    """Read the text form of stages; PlanError if it is none."""
    return tuple(_parse_stage(word) for word in text.split(','))


def _parse_stage(word: str) -> StageCut:
    found = _STAGE.fullmatch(word.strip())
    if found is None:
        raise PlanError(f'{word.strip()!r} is not a stage: write DEVICE, DEVICE*2+DEVICE or '
                        'DEVICE@OPERATOR, with commas between stages')
    members = []
    for part in found[1].split('+'):
        name, _, samples = part.partition('*')
        members.append(Member(name, int(samples or 1)))
    return StageCut(tuple(members), int(found[2]) if found[2] else None)


def plan_of_cuts(digest: str, source: str, cuts: Sequence[StageCut], costs: Sequence[float],
                 speeds: Mapping[str, float]) -> StagePlan:
    """
    Return the plan of some stages; `costs` are the operators' seconds at speed 1.

    :raises PlanError: if a stage would be empty, cuts do not ascend or leave operators, or a
        device has no speed.
    """
    if cuts[-1].stop not in (None, len(costs)):
        raise PlanError(f'the last stage ends with the last operator, before @{len(costs)}, not '
                        f'@{cuts[-1].stop}: leave that out')
    samples = lcm(*(sum(m.samples for m in cut.members) for cut in cuts))
    borders = _borders(cuts, costs, [_speed(cut, speeds) for cut in cuts])
    stages = []
    for cut, start, stop in zip(cuts, borders, borders[1:]):
        if stop <= start:
            raise PlanError(f'{len(costs)} operators, cut at {borders[1:-1]}, leave a stage of '
                            'them empty: cut elsewhere, or into fewer')
        share = samples // sum(m.samples for m in cut.members)
        stages.append(Stage(tuple(range(start, stop)), tuple(
            Member(m.device, m.samples * share) for m in cut.members)))
    return StagePlan(digest, source, samples, tuple(stages))


def operator_weights(graph: OperatorGraph) -> list[float]:
    """Return what the operators cost relative to one another where no device has timed them."""
    return [float(operator_flops(graph, op) + sum(
        graph.values[v].nbytes for v in op.outputs if v is not None)) for op in graph.operators]


def without(cuts: Sequence[StageCut], left: frozenset[str], source: str) -> tuple[StageCut, ...]:
    """
    Return the stages of the devices that are left, for a plan without the others.

    A stage that loses some of its devices goes on with the rest; one that
    loses all goes to the source, unless a neighbour can take it by moving its
    cut.
    """
    kept = [StageCut(tuple(m for m in cut.members if m.device in left), cut.stop) for cut in cuts]
    if all(cut.stop is None for cut in cuts):
        kept = [cut for cut in kept if cut.members]
    whole = (Member(source, 1),)
    return tuple(StageCut(cut.members or whole, cut.stop) for cut in kept) or (StageCut(whole),)


def plan_without(plan: StagePlan, left: frozenset[str]) -> StagePlan:
    """
    Return a plan for the devices that are left: the same stages, and the source for lost ones.

    What the lost devices of a stage took, those that are left share as they shared before.
    Transfers go in the order of inferences.
    """
    if left.issuperset(plan.devices):
        return plan
    kept = [tuple(m for m in stage.members if m.device in left) or (Member(plan.source, 1),)
            for stage in plan.stages]
    samples = lcm(*(sum(m.samples for m in members) for members in kept))
    if samples > MAX_SAMPLES:
        kept, samples = [(Member(members[0].device, 1),) for members in kept], 1
    return StagePlan(plan.digest, plan.source, samples, tuple(
        Stage(stage.operators, tuple(
            Member(m.device, m.samples * samples // sum(k.samples for k in members))
            for m in members)) for stage, members in zip(plan.stages, kept)))


def _speed(cut: StageCut, speeds: Mapping[str, float]) -> float:
    """Return the speed of a stage: that of its slowest device at its share of the samples."""
    total = sum(m.samples for m in cut.members)
    for member in cut.members:
        if not speeds.get(member.device, 0.0) > 0:
            raise PlanError(f'stage device {member.device!r} is not in the fleet, which has '
                            f'{", ".join(speeds)}')
        if member.samples < 1:
            raise PlanError(f'stage device {member.device!r} takes no samples: leave it out')
    return min(speeds[m.device] * total / m.samples for m in cut.members)


def _borders(cuts: Sequence[StageCut], costs: Sequence[float], speeds: Sequence[float],
             ) -> list[int]:
    """Return where stages begin and end; those without a cut of their own by their speed."""
    until = list(accumulate(costs, initial=0.0))
    borders, free = [0], list[float]()
    for stop, speed in zip([*(cut.stop for cut in cuts[:-1]), len(costs)], speeds):
        free.append(speed)
        if stop is not None:
            borders += _between(until, borders[-1], stop, free)
            free = []
    return borders


def _between(until: Sequence[float], start: int, stop: int, speeds: Sequence[float]) -> list[int]:
    """Divide operators start to stop so that each part takes its speed's share of the time."""
    stop = min(max(stop, start), len(until) - 1)
    found: list[int] = []
    work, total = until[stop] - until[start], sum(speeds)
    for count, reached in enumerate(accumulate(speeds[:-1]), 1):
        wanted = until[start] + work * reached / total
        least = (found[-1] if found else start) + 1
        most = max(least, stop - (len(speeds) - count))
        found.append(min(range(least, most + 1), key=lambda k: abs(until[k] - wanted)))
    return [*found, stop]
