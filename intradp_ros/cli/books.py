# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""Books on the command line: making them, and what they say of a bandwidth."""
from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
import math
from typing import Any

from intradp_ros.cli.command_errors import CommandError
from intradp_ros.cli.output import Output
from intradp_ros.cli.subject import Subject
from intradp_ros.graph.serialise import graph_to_json
from intradp_ros.power.power_states import PowerStates
from intradp_ros.profiling.machine import available_cores
from intradp_ros.profiling.profile import JoinCost, Profile
from intradp_ros.schedule.cost import CostModel, LinkModel, WireCost
from intradp_ros.schedule.joins import joins_of
from intradp_ros.schedule.schedule import Compute, ROBOT, Schedule, SERVER, Transfer
from intradp_ros.systems.sharing.book.book import Entry, ScheduleBook
from intradp_ros.systems.sharing.book.plan_from_profiles import (
    book_from_profiles,
    LATENCY,
    PlanRequest,
)
from intradp_ros.systems.sharing.judge.simulator import simulate, Simulation
from intradp_ros.systems.sharing.partition.lowering import lower
from intradp_ros.systems.sharing.search.pool import Aim, Candidate, Evaluator, front
from intradp_ros.systems.sharing.session.rehearsal import lossy_difference
from intradp_ros.systems.sharing.strategies import CUT, DEADLINE, LOCAL, OFFLOAD, SHARED

MODES = (LOCAL, OFFLOAD, CUT, SHARED)
"""Strategies that are run, and that every book has."""


@dataclass(frozen=True, slots=True)
class Grid:
    """Bandwidths in Mbit/s, evenly spaced in the logarithm."""

    low: float
    high: float
    points: int


@dataclass(frozen=True, slots=True)
class Goal:
    """What is planned for: the objective with its deadline and the worth of a joule (seconds)."""

    objective: str = LATENCY
    deadline: float = DEADLINE
    seconds_per_joule: float = 0.0


@dataclass(frozen=True)
class Plan:
    """A book with what it was made from."""

    subject: Subject
    cost: CostModel
    book: ScheduleBook
    power: PowerStates

    def entries(self, mbps: float) -> dict[str, Entry]:
        """Return the entries of the grid's nearest bandwidth by the names that users see."""
        nearest = min(self.book.grid, key=lambda point: abs(math.log(point / mbps)))
        found = {e.strategy: e for e in self.book.entries if e.mbps == nearest}
        return {name: found[name] for name in MODES}

    def link(self, mbps: float) -> LinkModel:
        """Return the link that the book assumes for a bandwidth."""
        return LinkModel.of_up(mbps, self.book.down_ratio, self.book.delay, self.book.overhead,
                               self.book.shared_air)

    def play(self, entry: Entry, trace: bool = False) -> Simulation:
        """Simulate an entry at its own bandwidth."""
        schedule = lower(self.cost.split, entry.partition)
        return simulate(schedule, self.cost, self.link(entry.mbps), trace=trace)

    def front(self, mbps: float) -> list[Candidate]:
        """Return schedules that trade latency for energy, at the grid's nearest bandwidth."""
        entries = self.entries(mbps)
        link, aim = self.link(entries[SHARED].mbps), Aim(power=self.power)
        price = Evaluator(self.cost, link, aim)
        return front(self.cost, link, aim,
                     {name: price(e.partition) for name, e in entries.items()})


def make_plan(subject: Subject, profiles: Mapping[str, Profile], grid: Grid, out: Output, *,
              delay: float, overhead: float, seed: int, lossy: str = '',
              shared_air: bool = False, goal: Goal | None = None, down_ratio: float = 1.0,
              ) -> Plan:
    """
    Return the book for two profiles; `delay` and `overhead` in seconds.

    If a lossy encoding is allowed, its effect on the example is measured.

    :raises CommandError: if the profiles do not fit the model.
    """
    split, goal = subject.shared.split, goal or Goal()
    request = PlanRequest(
        graph_to_json(split.captured), profiles[ROBOT].to_json(), profiles[SERVER].to_json(),
        grid.low, grid.high, grid.points, delay, overhead, seed, lossy,
        shared_air, goal.objective, goal.deadline, goal.seconds_per_joule,
        down_ratio=down_ratio)
    try:
        cost = CostModel.from_profiles(split, profiles)
        with out.progress('planning, by bandwidth') as advance:
            advance(0, grid.points)
            book = ScheduleBook.from_json(book_from_profiles(
                request, progress=advance, workers=available_cores()))
    except ValueError as error:
        raise CommandError(str(error)) from error
    return Plan(subject, cost, _with_difference(subject, book, out) if lossy else book,
                profiles[ROBOT].power)


def _with_difference(subject: Subject, book: ScheduleBook, out: Output) -> ScheduleBook:
    with out.status(f'measuring what {book.lossy} does to the outputs'):
        difference = lossy_difference(subject.shared, book, subject.inputs)
    if not math.isfinite(difference):
        raise CommandError(f'{book.lossy} makes an output of {subject.name} meaningless '
                           '(not a number, or where it should be constant): plan without --lossy')
    return replace(book, lossy_difference=difference)


def encodings(plan: Plan) -> dict[str, int]:
    """Count the transfers of all shared schedules by their encoding."""
    counts = Counter(t.encoding for mbps in plan.book.grid for t in lower(
        plan.cost.split, plan.entries(mbps)[SHARED].partition).transfers)
    return dict(counts.most_common())


def chosen_mode(entries: Mapping[str, Entry]) -> str:
    """Return the simplest system whose schedule is that of the shared mode."""
    best = entries[SHARED].partition
    return next(mode for mode in MODES if entries[mode].partition == best)


def stages(plan: Plan, entry: Entry) -> list[dict[str, Any]]:
    """Say for each stage of an entry who computes how much, and what is sent of its values."""
    split = plan.cost.split
    schedule = lower(split, entry.partition)
    found = []
    start = 0
    for stage in entry.partition.stages:
        inside = range(start, stage.stop)
        own = {v for i in inside for v in split.operators[i].operator.outputs if v is not None}
        if not start:
            own |= set(split.graph.inputs)
        sent = {side: sum(_wire_bytes(plan, t) for t in schedule.transfers
                          if t.source == side and t.value in own) for side in (ROBOT, SERVER)}
        found.append({
            'first': split.operators[start].operator.name,
            'last': split.operators[stage.stop - 1].operator.name,
            'operators': len(inside), 'share': stage.share,
            'robot_bands': stage.robot_bands, 'server_bands': stage.server_bands,
            'robot_ms': _compute(plan, schedule, ROBOT, inside),
            'server_ms': _compute(plan, schedule, SERVER, inside),
            'bytes_up': sent[ROBOT], 'bytes_down': sent[SERVER]})
        start = stage.stop
    return found


def _wire_bytes(plan: Plan, transfer: Transfer) -> int:
    """Return the bytes that a transfer puts on the link in its encoding."""
    wire = plan.cost.wire.get((transfer.value, transfer.encoding), WireCost())
    return round(plan.cost.split.nbytes(transfer.value, transfer.region.rows) * wire.ratio)


def _compute(plan: Plan, schedule: Schedule, side: str, inside: range) -> float:
    """Return the milliseconds that a side computes in a stage, with putting rows together."""
    cost = plan.cost
    joins = joins_of(cost.split, schedule, side, has_inputs=side == ROBOT)
    joining = cost.joining.get(side, JoinCost())
    return 1e3 * sum(
        float(cost.seconds[side][step.operator][step.region.rows]) + joining.seconds(*joined)
        for step, joined in zip(schedule.programs[side], joins)
        if isinstance(step, Compute) and step.operator in inside)
