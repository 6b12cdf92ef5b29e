# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""Books on the command line: making them, and what they say of a bandwidth."""
from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
import math
from typing import Any

from intradp_ros.cli.errors import CommandError
from intradp_ros.cli.output import Output
from intradp_ros.cli.subject import Subject
from intradp_ros.execution.planning import book_from_profiles, PlanRequest
from intradp_ros.execution.rehearsal import lossy_difference
from intradp_ros.graph.serialise import graph_to_json
from intradp_ros.planning.baselines import CUT, LOCAL, LOSS, OFFLOAD
from intradp_ros.planning.book import Entry, ScheduleBook
from intradp_ros.planning.cost import CostModel, LinkModel
from intradp_ros.planning.lowering import lower
from intradp_ros.planning.schedule import Compute, ROBOT, SERVER, Step
from intradp_ros.planning.simulator import simulate, Simulation
from intradp_ros.profiling.profile import Profile

SHARED = 'shared'
MODES = {LOCAL: LOCAL, OFFLOAD: OFFLOAD, CUT: CUT, SHARED: LOSS}
"""Strategies of a book by the names that users see."""


@dataclass(frozen=True, slots=True)
class Grid:
    """Bandwidths in Mbit/s, evenly spaced in the logarithm."""

    low: float
    high: float
    points: int


@dataclass(frozen=True)
class Plan:
    """A book with what it was made from."""

    subject: Subject
    cost: CostModel
    book: ScheduleBook

    def entries(self, mbps: float) -> dict[str, Entry]:
        """Return the entries of the grid's nearest bandwidth by mode."""
        return {mode: self.book.entries[self.book.choose(mbps, strategy)]
                for mode, strategy in MODES.items()}

    def play(self, entry: Entry, trace: bool = False) -> Simulation:
        """Simulate an entry at its own bandwidth."""
        link = LinkModel.symmetric(entry.mbps, self.book.delay, self.book.overhead)
        schedule = lower(self.cost.split, entry.partition)
        return simulate(schedule, self.cost, link, trace=trace)


def make_plan(subject: Subject, profiles: Mapping[str, Profile], grid: Grid, out: Output, *,
              delay: float, overhead: float, seed: int, lossy: str = '') -> Plan:
    """
    Return the book for two profiles; `delay` and `overhead` in seconds.

    If a lossy encoding is allowed, its effect on the example is measured.

    Raises
    ------
    CommandError
        If the profiles do not fit the model.

    """
    split = subject.shared.split
    request = PlanRequest(
        graph_to_json(split.captured), profiles[ROBOT].to_json(), profiles[SERVER].to_json(),
        grid.low, grid.high, grid.points, delay, overhead, seed, lossy)
    try:
        cost = CostModel.from_profiles(split, profiles)
        with out.progress('planning, by bandwidth') as advance:
            advance(0, grid.points)
            book = ScheduleBook.from_json(book_from_profiles(request, progress=advance))
    except ValueError as error:
        raise CommandError(str(error)) from error
    return Plan(subject, cost, _with_difference(subject, book, out) if lossy else book)


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
    """Return the simplest mode whose schedule is that of the shared mode."""
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
        sent = {side: sum(split.nbytes(t.value, t.region.rows) for t in schedule.transfers
                          if t.source == side and t.value in own) for side in (ROBOT, SERVER)}
        found.append({
            'first': split.operators[start].operator.name,
            'last': split.operators[stage.stop - 1].operator.name,
            'operators': len(inside), 'share': stage.share,
            'robot_bands': stage.robot_bands, 'server_bands': stage.server_bands,
            'robot_ms': _compute(plan, schedule.programs[ROBOT], ROBOT, inside),
            'server_ms': _compute(plan, schedule.programs[SERVER], SERVER, inside),
            'bytes_up': sent[ROBOT], 'bytes_down': sent[SERVER]})
        start = stage.stop
    return found


def _compute(plan: Plan, program: Iterable[Step], side: str, inside: range) -> float:
    """Return the milliseconds that a side computes in a stage."""
    return 1e3 * sum(float(plan.cost.seconds[side][step.operator][step.region.rows])
                     for step in program if isinstance(step, Compute) and step.operator in inside)
