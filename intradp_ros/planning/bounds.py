# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""
A lower bound on the latency of every schedule, by a linear program.

Robot and server compute fractions of every operator's rows; rows need not be
whole, halos cost nothing, transfers are one stream each way.  What no
schedule can avoid remains: every needed row is computed somewhere, what a
device reads it has computed or received, devices and link carry no more than
they can between two moments, and meeting points divide the time.  The
argument is in doc/planning.md.
"""
from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
from scipy.optimize import Bounds, LinearConstraint, milp

from intradp_ros.planning.cost import CostModel, LinkModel
from intradp_ros.planning.linear_program import Columns, Rows, Term
from intradp_ros.planning.meetings import find_meetings
from intradp_ros.planning.reading import Bools, cached_lines, needed_rows, operator_rows
from intradp_ros.planning.schedule import ROBOT, SERVER, SIDES

Floats = npt.NDArray[np.float64]
# The solver keeps constraints to 1e-7 of our unit of time.
_SLACK = 1e-5
# Meetings that are decided between the sides; more would take seconds.
_CHOICES = 2


def lower_bound(cost: CostModel, link: LinkModel) -> float:
    """Return seconds that no schedule's predicted latency can be below."""
    return Relaxation(cost).bound(link)


def least_seconds(table: Floats) -> float:
    """Return seconds of all rows at the least price of a row, for any bands (0 if no rows)."""
    rows = np.arange(1, len(table))
    return float((table[1:] / rows).min() * (len(table) - 1)) if len(rows) else 0.0


class Relaxation:
    """
    The linear program of one graph on two devices, for links of any rate.

    Of each value no more bytes have to cross the link than by the best of
    its encodings.
    """

    def __init__(self, cost: CostModel) -> None:
        self.cost, self.split = cost, cost.split
        self.needed = needed_rows(self.split)
        self.least = {side: np.array([least_seconds(t) for t in cost.seconds[side]])
                      for side in SIDES}
        count = len(self.split.operators)
        self.fraction = np.array([operator_rows(self.split, self.needed, i).mean()
                                  for i in range(count)])
        self.nbytes = np.array([float(self.split.nbytes(v, rows))
                                for v, rows in enumerate(self.split.rows)])
        ratios = np.ones(len(self.nbytes))
        for (value, _), wire in cost.wire.items():
            ratios[value] = min(ratios[value], wire.ratio)
        self.nbytes *= ratios
        self.alone = float(self.least[ROBOT] @ self.fraction)
        self.meetings = find_meetings(self.split, self.needed,
                                      self.least[ROBOT] + self.least[SERVER])
        self.program = _Program(self)

    def bound(self, link: LinkModel) -> float:
        """Return seconds that no schedule can be below: the robot alone, or both at best."""
        return min(self.alone, self.shared(link)) * (1 - _SLACK)

    def shared(self, link: LinkModel) -> float:
        """Return seconds that no schedule can be below in which the server is of use."""
        if self.alone == 0:
            return 0.0
        return self.program.solve(link) * self.alone


class _Program:
    """
    Variables and the constraints that do not depend on the link.

    For each side `total` is the fraction of an operator's rows that it ever
    computes, and `early` what it has of them by the first meeting that needs
    them; likewise for what it receives of a value.
    """

    def __init__(self, relaxation: Relaxation) -> None:
        self.given, self.split = relaxation, relaxation.split
        self.meetings = relaxation.meetings
        self.columns, self.rows = Columns(), Rows()
        count, values = len(self.split.operators), len(self.split.rows)
        self.total = {side: self.columns.several(count) for side in SIDES}
        self.received = {side: self.columns.several(values) for side in SIDES}
        self.moment = self.columns.several(self.meetings.end, float('inf'))
        self.context = self.meetings.before.copy()
        for moment, index in enumerate(self.meetings.operators, 1):
            if self._single(index):
                self.context[index] = moment
        self.window = self._value_windows()
        again, wanted = self._again()
        self.early = {side: self._early(self.total[side], again) for side in SIDES}
        self.early_received = {side: self._early(self.received[side], wanted)
                               for side in SIDES}
        self._coverage()
        self._reading()
        self._meet()

    def _again(self) -> tuple[Bools, Bools]:
        """
        Return which operators, and which values, may be of use again after their first meeting.

        What is read across a meeting, and what that is made from.  A meeting
        of one row may run again on the other side, without more input.
        """
        operators = np.zeros(len(self.split.operators), dtype=bool)
        values = np.zeros(len(self.split.rows), dtype=bool)
        for value in self.split.graph.output_values:
            values[value] = self.window[value, 1] < self.meetings.end
        for op in reversed(self.split.operators):
            index, inputs = op.operator.id, list(op.operator.inputs)
            again = any(values[v] for v in op.operator.outputs if v is not None)
            crossing = self.window[inputs, 1] < self.context[index]
            ahead = self.window[inputs, 1] < self.meetings.end
            values[inputs] |= crossing | (again & ahead & (not self._single(index)))
            operators[index] = again or self._single(index)
        return operators, values

    def _single(self, index: int) -> bool:
        return self.split.operators[index].rows == 1 and index in self.meetings.operators

    def _early(self, total: Sequence[int], again: Bools) -> list[int]:
        """Return a variable below the total where that may grow later, else the total itself."""
        found = []
        for column, more in zip(total, again):
            early = column
            if more:
                early = self.columns.new()
                self.rows.add([(1.0, early), (-1.0, column)], 0.0)
            found.append(early)
        return found

    def _value_windows(self) -> npt.NDArray[np.int64]:
        """Between which moments a value can be sent for those that read it first."""
        producer, consumers = self.split.graph.producer, self.split.graph.consumers
        before, after = self.meetings.before, self.meetings.after
        windows = []
        for value in range(len(self.split.rows)):
            maker = producer.get(value)
            first = min((self.context[i] for i in consumers[value]), default=self.meetings.end)
            windows.append((0, first) if maker is None else (after[maker], before[maker]))
        return np.array(windows, dtype=np.int64).reshape(-1, 2)

    def _coverage(self) -> None:
        """Every needed row is computed by one of the sides, in time for the first meeting."""
        for index, fraction in enumerate(self.given.fraction):
            if fraction > 0:
                self.rows.add([(-1.0, self.early[side][index]) for side in SIDES], -fraction)

    def _reading(self) -> None:
        """Let each side read no more than it has received or computed."""
        lines = cached_lines()
        for op in self.split.operators:
            index = op.operator.id
            for value, rowmap in zip(op.operator.inputs, op.maps):
                height = self.split.rows[value]
                for line in lines(rowmap):
                    if line.slope <= 0:
                        continue
                    slope, limit = line.slope * op.rows / height, -line.offset / height
                    self._read_line(index, value, slope, limit)
        for value in set(self.split.graph.output_values):
            self._read(ROBOT, value, [], -1.0, False)

    def _read_line(self, index: int, value: int, slope: float, limit: float) -> None:
        for side in SIDES:
            first = (slope, self.early[side][index])
            ever = first if self._single(index) else (slope, self.total[side][index])
            self._read(side, value, [ever], limit, False)
            if self.context[index] == self.window[value, 1]:
                self._read(side, value, [first], limit, True)

    def _read(self, side: str, value: int, terms: list[Term], limit: float, early: bool) -> None:
        producer = self.split.graph.producer.get(value)
        if producer is None and side == ROBOT:
            return
        computed, received = ((self.early, self.early_received) if early
                              else (self.total, self.received))
        have = [(-1.0, received[side][value])]
        if producer is not None:
            have.append((-1.0, computed[side][producer]))
        self.rows.add(terms + have, limit)

    def _meet(self) -> None:
        """Each meeting first runs on one side, which has all that the meeting needs."""
        heaviest = self._heaviest()
        for moment, (index, whole) in enumerate(
                zip(self.meetings.operators, self.meetings.whole), 1):
            on_robot = self.columns.new(integral=index in heaviest)
            rows = self.split.operators[index].rows
            for side, (factor, rest) in {ROBOT: (1.0, 0.0), SERVER: (-1.0, 1.0)}.items():
                self.rows.add([(factor / rows, on_robot), (-1.0, self.early[side][index])],
                              -rest / rows)
                for value in whole:
                    share = float(self.given.needed[value].mean())
                    self._read(side, value, [(factor * share, on_robot)], -rest * share,
                               self.window[value, 1] == moment)

    def _heaviest(self) -> set[int]:
        """Return meetings of which it matters that they run on one side, and not a bit on each."""
        nbytes = self.given.nbytes
        heavy = nbytes[list(self.split.graph.inputs)].sum() / 20
        weight = {index: nbytes[list(whole)].sum() for index, whole
                  in zip(self.meetings.operators, self.meetings.whole)}
        ranked = sorted(weight, key=lambda index: -weight[index])
        return {index for index in ranked[:_CHOICES] if weight[index] > heavy}

    def solve(self, link: LinkModel) -> float:
        """Return the bound on the moment of the end, in units of the robot's time alone."""
        rows = Rows()
        end = self.meetings.end
        pairs = {(a, a + 1) for a in range(end)} | {(0, b) for b in range(1, end + 1)} \
            | {(a, end) for a in range(end)}
        for start, stop in sorted(pairs):
            self._window(rows, link, start, stop)
        width = len(self.columns.most)
        objective = np.zeros(width)
        objective[self.moment[-1]] = 1.0
        result = milp(
            objective, integrality=np.array(self.columns.integral, dtype=int),
            bounds=Bounds(0.0, np.array(self.columns.most)),
            constraints=[LinearConstraint(part.matrix(width), ub=part.limit)
                         for part in (self.rows, rows)],
            options={'node_limit': 20})
        bound = result.mip_dual_bound if any(self.columns.integral) else result.fun
        return 0.0 if bound is None or not np.isfinite(bound) else float(bound)

    def _window(self, rows: Rows, link: LinkModel, start: int, stop: int) -> None:
        """Devices and link do no more between two moments than there is time for."""
        unit, whole = self.given.alone, (start, stop) == (0, self.meetings.end)
        hop = (link.overhead + link.delay) / unit if whole else 0.0
        span = [(-1.0, self.moment[stop - 1])]
        if start:
            span.append((1.0, self.moment[start - 1]))
        within = np.flatnonzero((self.meetings.after >= start) & (self.meetings.before <= stop))
        last = stop == self.meetings.end
        for side, idle in ((ROBOT, 0.0), (SERVER, 2 * hop)):
            computed = self.total[side] if last else self.early[side]
            seconds = self.given.least[side] / unit
            rows.add([*span, *((seconds[i], computed[i]) for i in within if seconds[i] > 0)],
                     -idle)
        up = self._transfers(SERVER, link.up, start, stop)
        down = self._transfers(ROBOT, link.down, start, stop)
        rows.add([*span, *up], -2 * hop)
        rows.add([*span, *down], -2 * hop)
        if link.shared:
            rows.add([*span, *up, *down], -2 * hop + (link.delay / unit if whole else 0.0))

    def _transfers(self, side: str, rate: float, start: int, stop: int) -> list[Term]:
        """Return the time of what a side receives between two moments."""
        window = self.window
        within = np.flatnonzero((window[:, 0] >= start) & (window[:, 1] <= stop))
        received = (self.received if stop == self.meetings.end else self.early_received)[side]
        seconds = self.given.nbytes / (rate * self.given.alone)
        return [(seconds[v], received[v]) for v in within if seconds[v] > 0]
