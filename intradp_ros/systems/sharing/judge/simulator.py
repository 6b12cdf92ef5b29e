# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""
The judge of every plan: executes a schedule on devices and a link in model time.

Each device runs its program in order; each direction of the link carries
transfers one after another in the order they were sent; compute and
transfers overlap as they do in the runtime.
"""
from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import accumulate, chain, pairwise
from typing import Any

from intradp_ros.schedule.cost import CostModel, LinkModel
from intradp_ros.schedule.joins import Joined, joins_of
from intradp_ros.schedule.schedule import Compute, ROBOT, Schedule, Send, SIDES, Step
from intradp_ros.split.local_operator import SplitGraph
from intradp_ros.systems.sharing.judge.kernels.judging import charge
from intradp_ros.systems.sharing.judge.kernels.play import play
from intradp_ros.systems.sharing.judge.kernels.side_programs import COMPUTE, RECEIVE, SEND
from intradp_ros.systems.sharing.judge.records import (
    as_plain,
    Clock,
    Programs,
    row_class,
    Rows,
    StepCosts,
    WORK,
)
from intradp_ros.systems.sharing.judge.tables import (
    link_cost_of,
    plain_clock,
    plain_step_costs,
    plain_tables_of,
)
from intradp_ros.wire.codecs.names import NONE

_LANES = ('uplink', 'downlink')
_SideRow, _EntryRow = (row_class(WORK[name]) for name in ('side', 'entry'))


@dataclass(frozen=True, slots=True)
class Span:
    """Something that took from `start` to `stop` (seconds from the inference's start)."""

    lane: str
    kind: str
    name: str
    start: float
    stop: float


@dataclass(frozen=True)
class Simulation:
    """
    What a schedule takes on a link: seconds, bytes, and (if asked for) every span.

    By device: `busy` are the seconds in which it computes, `slowed` those by
    which that takes longer for bytes that are moved meanwhile, `sending`
    those in which its transfers are on the link.
    """

    latency: float
    busy: dict[str, float]
    bytes_up: int
    bytes_down: int
    spans: tuple[Span, ...] = ()
    sending: dict[str, float] = field(default_factory=dict)
    slowed: dict[str, float] = field(default_factory=dict)


class DeadlockError(RuntimeError):
    """Programs that wait for each other: the schedule is wrong."""


def simulate(schedule: Schedule, cost: CostModel, link: LinkModel, *,
             trace: bool = False) -> Simulation:
    """
    Play a schedule and return when the robot's program ends.

    :raises DeadlockError: if the programs wait for each other for ever.
    """
    programs, costs = _programs(cost.split, schedule), step_costs(schedule, cost, link)
    clock = plain_clock()
    if not play(programs, costs, clock, len(schedule.transfers)):
        raise DeadlockError(
            f'no device can go on; entries done: {[clock.device[d].place for d in range(2)]}')
    spans = tuple(_spans(schedule, cost, programs, clock)) if trace else ()
    return result_of(clock.device, spans)


def result_of(devices: Rows, spans: tuple[Span, ...] = ()) -> Simulation:
    """Return what the clock says of both devices in the end."""
    robot, server = devices[0], devices[1]
    return Simulation(
        float(robot.now), dict(zip(SIDES, (float(robot.busy), float(server.busy)))),
        int(robot.sent), int(server.sent), spans,
        dict(zip(SIDES, (float(robot.sending), float(server.sending)))),
        dict(zip(SIDES, (float(robot.slowed), float(server.slowed)))))


def _programs(split: SplitGraph, schedule: Schedule) -> Programs:
    programs = [schedule.programs[side] for side in SIDES]
    joined = [joins_of(split, schedule, side, has_inputs=side == ROBOT) for side in SIDES]
    ends = list(accumulate(map(len, programs), initial=0))
    return Programs([_SideRow(start=a, stop=b) for a, b in pairwise(ends)],
                    list(map(_entry, chain(*programs), chain(*joined))))


def _entry(step: Step, joined: Joined) -> Any:
    if isinstance(step, Compute):
        return _EntryRow(kind=COMPUTE, item=step.operator, rows=step.region.rows,
                         joins=joined.times, joined=joined.nbytes)
    return _EntryRow(kind=SEND if isinstance(step, Send) else RECEIVE, item=step.transfer)


def step_costs(schedule: Schedule, cost: CostModel, link: LinkModel) -> StepCosts:
    """Return what steps and transfers take, for the kernels as plain Python."""
    tables, transfers = plain_tables_of(cost.split), schedule.transfers
    costs = plain_step_costs(cost)
    encodings = {t.value: t.encoding for t in transfers if t.encoding != NONE}
    link_cost = as_plain(link_cost_of(cost, link, tuple(encodings.items())))
    for t in transfers:
        charge(tables, link_cost, costs, t.id, t.value, t.region.rows, SIDES.index(t.source))
    return costs


def _spans(schedule: Schedule, cost: CostModel, programs: Programs, clock: Clock,
           ) -> Iterator[Span]:
    graph = cost.split.graph
    for number, side in enumerate(SIDES):
        for at in range(programs.side[number].start, programs.side[number].stop):
            if programs.entry[at].kind == COMPUTE:
                name = graph.operators[programs.entry[at].item].name
                yield Span(side, 'compute', name, clock.entry[at].began, clock.entry[at].ended)
    for t in schedule.transfers:
        yield Span(_LANES[SIDES.index(t.source)], 'transfer', graph.values[t.value].name,
                   clock.transfer[t.id].left, clock.transfer[t.id].arrived)
