# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""
Whether the schedules that ran on emulated devices give the unsplit model's result.

Emulated devices compute no numbers.  So the proof has two parts: after the
run, both programs of each schedule that ran compute real values, with every
transfer encoded, cut and put together again (`execution.rehearsal`), and are
compared with the unsplit model; and during the run every chunk arrived as it
was sent (`testbed.checking channel`).
"""
from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
import time
from typing import Any

from intradp_lab.report.statements import OURS
from intradp_lab.testbed.checking_channel import Arrived, arrived_path
from intradp_lab.testbed.rescale_weights import LEAST_REACTION, reaction, rescale_weights
from intradp_lab.testbed.trial import Seen, Trial
from intradp_ros.graph.operator_graph import OperatorGraph, ValueRef
from intradp_ros.graph.reference_evaluation import run_graph
from intradp_ros.graph.to_float64 import in_double
from intradp_ros.runtime.models.catalogue import example_inputs, ModelSpec
from intradp_ros.runtime.models.model import SharedModel
from intradp_ros.schedule.schedule import SIDES
from intradp_ros.split.checks.verify import output_error, OutputError
from intradp_ros.split.split_graph import split_graph
from intradp_ros.systems.sharing.book.book import ScheduleBook
from intradp_ros.systems.sharing.partition.partition import local, Partition
from intradp_ros.systems.sharing.session.rehearsal import rehearse

#: Seconds of checking by default; the schedule that ours ran most is checked in any case.
BUDGET = 20.0


@dataclass(frozen=True)
class Exactness:
    """
    What was checked of one system.

    Of its `frames`, `recovered` were finished by the robot alone after an
    outage and are not spoken of here.  The others ran `schedules` different
    schedules; `checked` of these, which `frames_checked` inferences ran by,
    computed real values.  `difference` is the largest one to the unsplit
    model, relative to the output's spread, and `exact` whether all are
    rounding; both None if none was checked.
    """

    frames: int
    recovered: int
    schedules: int
    checked: int
    frames_checked: int
    difference: float | None
    exact: bool | None


def schedules_run(seen: Seen, book: ScheduleBook, operators: int) -> Counter[Partition]:
    """Count the inferences by the schedule that they ran to its end."""
    alone = local(operators)
    return Counter(
        book.entries[index].partition if shared else alone
        for index, shared, recovered in zip(seen.schedule, seen.shared, seen.recovered)
        if not recovered)


def in_order(ran: Mapping[str, Counter[Partition]]) -> list[Partition]:
    """Return all schedules: first those that each system, ours before others, ran most."""
    places: dict[Partition, tuple[int, bool, int]] = {}
    for system, counts in ran.items():
        for rank, (partition, frames) in enumerate(counts.most_common()):
            place = (rank, system != OURS, -frames)
            places[partition] = min(places.get(partition, place), place)
    return sorted(places, key=lambda partition: places[partition])


class Comparer:
    """
    Runs schedules on real values and compares them with the unsplit model.

    If the model's output hardly depends on its input, as with random weights,
    so that an error would not show, its weights are adjusted for the check.
    Where outputs are whole numbers, all is computed in double precision: in
    single, rounding decides which of two classes with equal scores is named.
    """

    def __init__(self, model: SharedModel) -> None:
        self.model, self.adjusted = _precise(model), False
        self.inputs = example_inputs(self.model)
        self.wanted, self.reaction = self._unsplit(self.model)
        if self.reaction < LEAST_REACTION:
            self.model = _with_graph(self.model,
                                     rescale_weights(self.model.split.captured, self.inputs))
            self.adjusted = True
            self.wanted, self.reaction = self._unsplit(self.model)

    def _unsplit(self, model: SharedModel) -> tuple[list[Any], float]:
        """Return the unsplit outputs, and how far they move with another input."""
        wanted, other = (run_graph(model.split.captured, inputs)
                         for inputs in (self.inputs, example_inputs(model, seed=1)))
        return wanted, reaction(wanted, other)

    def __call__(self, partition: Partition) -> OutputError | None:
        """Return the largest error of an output; None if all outputs are constants."""
        graph = self.model.split.graph
        values = rehearse(self.model, partition, self.inputs)
        errors = [output_error(graph.values[ref.value].name, values[ref.value], wanted)
                  for ref, wanted in zip(graph.outputs, self.wanted) if isinstance(ref, ValueRef)]
        return max(errors, key=lambda error: error.relative, default=None)


def _precise(model: SharedModel) -> SharedModel:
    """
    Return the model in double precision if an output is not of floating point.

    As it is, though, if that takes further operators: schedules would not fit.
    """
    graph = model.split.captured
    if all(graph.values[v].dtype.is_floating_point for v in graph.output_values):
        return model
    wide = in_double(graph)
    return _with_graph(model, wide) if len(wide.operators) == len(graph.operators) else model


def _with_graph(model: SharedModel, graph: OperatorGraph) -> SharedModel:
    """Return the model with the same operators, but other numbers."""
    return replace(model, split=split_graph(graph, model.split.axis))


def compare(partitions: Sequence[Partition], comparer: Callable[[Partition], OutputError | None],
            budget: float, now: Callable[[], float] = time.monotonic,
            ) -> dict[Partition, OutputError | None]:
    """Compare schedules in order until the next one would take longer than the budget's rest."""
    found: dict[Partition, OutputError | None] = {}
    begin, longest = now(), 0.0
    for partition in partitions:
        before = now()
        if found and before - begin + longest > budget:
            break
        found[partition] = comparer(partition)
        longest = max(longest, now() - before)
    return found


def summary(seen: Seen, ran: Counter[Partition],
            found: Mapping[Partition, OutputError | None]) -> Exactness:
    """Say what was checked of one system."""
    checked = [partition for partition in ran if partition in found]
    errors = [error for p in checked if (error := found[p]) is not None]
    return Exactness(
        len(seen.at), sum(seen.recovered), len(ran), len(checked), sum(ran[p] for p in checked),
        max((e.relative for e in errors), default=0.0) if checked else None,
        all(e.exact for e in errors) if checked else None)


def exactness(trial: Trial, seen: Sequence[Seen], budget: float = BUDGET) -> dict[str, Any]:
    """
    Check what ran in a trial, in about `budget` seconds, and return it as plain data.

    ``systems`` has an `Exactness` for each system, ``arrived`` by side the
    chunks and bytes that were compared with what was sent.  ``adjusted`` says
    whether the check had other weights than the model, ``telling`` whether
    the outputs depended on the input, so that an error would show.
    """
    model = ModelSpec.parse(trial.model).load(trial.axis)
    books = {phase.system: ScheduleBook.load(Path(phase.book)) for phase in trial.phases}
    operators = len(model.split.operators)
    ran = {s.system: schedules_run(s, books[s.system], operators) for s in seen}
    comparer = Comparer(model)
    found = compare(in_order(ran), comparer, budget)
    return {
        'adjusted': comparer.adjusted, 'telling': comparer.reaction >= LEAST_REACTION,
        'systems': {s.system: asdict(summary(s, ran[s.system], found)) for s in seen},
        'arrived': {side: asdict(Arrived.load(arrived_path(Path(trial.output), side)))
                    for side in SIDES}}
