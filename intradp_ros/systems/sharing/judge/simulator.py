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
from itertools import accumulate, chain

from intradp_ros.schedule.cost import CostModel, LinkModel
from intradp_ros.schedule.schedule import Compute, Schedule, Send, SIDES, Step
from intradp_ros.split.local_operator import SplitGraph
from intradp_ros.systems.sharing.judge.kernels.judging import charge
from intradp_ros.systems.sharing.judge.kernels.play import play
from intradp_ros.systems.sharing.judge.kernels.side_programs import COMPUTE, RECEIVE, SEND
from intradp_ros.systems.sharing.judge.records import as_lists, Charges, Clock, pack, Programs
from intradp_ros.systems.sharing.judge.tables import (
    charges_for,
    clock_for,
    link_cost_of,
    listed_tables_of,
)
from intradp_ros.wire.codecs.names import NONE

_LANES = ('uplink', 'downlink')


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

    By device: `busy` are the seconds in which it computes, `sending` those
    in which its transfers are on the link.
    """

    latency: float
    busy: dict[str, float]
    bytes_up: int
    bytes_down: int
    spans: tuple[Span, ...] = ()
    sending: dict[str, float] = field(default_factory=dict)


class DeadlockError(RuntimeError):
    """Programs that wait for each other: the schedule is wrong."""


def simulate(schedule: Schedule, cost: CostModel, link: LinkModel, *,
             trace: bool = False) -> Simulation:
    """
    Play a schedule and return when the robot's program ends.

    Raises
    ------
    DeadlockError
        If the programs wait for each other for ever.

    """
    programs, charges = _programs(schedule), _charges(schedule, cost, link)
    clock = as_lists(clock_for(programs.x[programs.stop + 1], len(schedule.transfers)))
    if not play(programs, charges, clock, len(schedule.transfers)):
        raise DeadlockError(
            f'no device can go on; entries done: {clock.x[clock.place:clock.place + 2]}')
    spans = tuple(_spans(schedule, cost, programs, clock)) if trace else ()
    return result_of(clock, spans)


def result_of(clock: Clock, spans: tuple[Span, ...] = ()) -> Simulation:
    """Return what the clock says in the end."""
    busy, sending = ([float(t) for t in clock.y[at:at + 2]] for at in (clock.busy, clock.sending))
    up, down = (int(sent) for sent in clock.x[clock.sent:clock.sent + 2])
    return Simulation(float(clock.y[clock.now]), dict(zip(SIDES, busy)), up, down, spans,
                      dict(zip(SIDES, sending)))


def _programs(schedule: Schedule) -> Programs:
    programs = [schedule.programs[side] for side in SIDES]
    ends = list(accumulate(map(len, programs), initial=0))
    entries = [_entry(step) for step in chain(*programs)]
    kind, item, rows = ([entry[k] for entry in entries] for k in range(3))
    return as_lists(pack(Programs, {
        'start': ends[:-1], 'stop': ends[1:], 'kind': kind, 'item': item, 'rows': rows}))


def _entry(step: Step) -> tuple[int, int, int]:
    if isinstance(step, Compute):
        return COMPUTE, step.operator, step.region.rows
    return (SEND if isinstance(step, Send) else RECEIVE), step.transfer, 0


def _charges(schedule: Schedule, cost: CostModel, link: LinkModel) -> Charges:
    tables, transfers = listed_tables_of(cost.split), schedule.transfers
    charges = as_lists(charges_for(cost, len(transfers)))
    encodings = {t.value: t.encoding for t in transfers if t.encoding != NONE}
    link_cost = as_lists(link_cost_of(cost, link, tuple(encodings.items())))
    for t in transfers:
        charge(tables, link_cost, charges, t.id, t.value, t.region.rows, SIDES.index(t.source))
    return charges


def _spans(schedule: Schedule, cost: CostModel, programs: Programs, clock: Clock,
           ) -> Iterator[Span]:
    graph = cost.split.graph
    for number, side in enumerate(SIDES):
        for at in range(programs.x[programs.start + number], programs.x[programs.stop + number]):
            if programs.x[programs.kind + at] == COMPUTE:
                name = graph.operators[programs.x[programs.item + at]].name
                yield Span(side, 'compute', name, clock.y[clock.began + at],
                           clock.y[clock.ended + at])
    for t in schedule.transfers:
        yield Span(_LANES[SIDES.index(t.source)], 'transfer', graph.values[t.value].name,
                   clock.y[clock.left + t.id], clock.y[clock.arrived + t.id])


def transfer_bytes(split: SplitGraph, schedule: Schedule, source: str) -> int:
    """Bytes that a device sends in one inference."""
    return sum(split.nbytes(t.value, t.region.rows)
               for t in schedule.transfers if t.source == source)
