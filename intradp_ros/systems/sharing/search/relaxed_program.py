# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""What every schedule satisfies that leaves each side at most some rows, as a linear program."""
from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
import numpy.typing as npt
from scipy.optimize import Bounds, LinearConstraint, milp
from scipy.sparse import csr_array

from intradp_ros.schedule.cost import LinkModel
from intradp_ros.schedule.schedule import ROBOT, SERVER, SIDES
from intradp_ros.systems.sharing.judge.rows_needed import Bools
from intradp_ros.systems.sharing.partition.reach import Facts, Most

# Barriers that are decided between the sides; more would take seconds.
_CHOICES = 2
_OTHER = {ROBOT: SERVER, SERVER: ROBOT}
_INFEASIBLE = 2  # status of `milp`
Term = tuple[float, int]


class Columns:
    """Numbers the variables of the linear program; their range is 0 to `most`."""

    def __init__(self) -> None:
        self.most: list[float] = []
        self.integral: list[bool] = []

    def new(self, most: float = 1.0, integral: bool = False) -> int:
        """Return the number of a new variable."""
        self.most.append(most)
        self.integral.append(integral)
        return len(self.most) - 1

    def several(self, count: int, most: float = 1.0) -> list[int]:
        """Return the numbers of several new variables."""
        return [self.new(most) for _ in range(count)]


class Rows:
    """Collects constraints ``sum of terms <= limit``."""

    def __init__(self) -> None:
        self.row: list[int] = []
        self.column: list[int] = []
        self.factor: list[float] = []
        self.limit: list[float] = []

    def add(self, terms: Iterable[Term], limit: float) -> None:
        """Add a constraint; a column may come several times, its factors add up."""
        for factor, column in terms:
            self.row.append(len(self.limit))
            self.column.append(column)
            self.factor.append(factor)
        self.limit.append(limit)

    def matrix(self, columns: int) -> csr_array:
        """Return the factors."""
        return csr_array((self.factor, (self.row, self.column)), (len(self.limit), columns))


class RelaxedProgram:
    """
    Variables and the constraints that do not depend on the link.

    For each side `total` is the fraction of an operator's rows that it ever
    computes, and `early` what it has of them by the first barrier that needs
    them; likewise for what it receives of a value.
    """

    def __init__(self, facts: Facts, most: Most) -> None:
        self.facts, self.split, self.most = facts, facts.split, most
        self.fewest = {side: np.maximum(0, facts.wanted - most[_OTHER[side]]) for side in SIDES}
        self.possible = all((self.fewest[side] <= most[side]).all() for side in SIDES)
        self.barriers = facts.barriers
        self.columns, self.rows = Columns(), Rows()
        values = len(self.split.rows)
        heights = np.maximum(facts.heights, 1)
        self.total = {side: [self.columns.new(m) for m in most[side] / heights]
                      for side in SIDES}
        self.received = {side: self.columns.several(values) for side in SIDES}
        self.moment = self.columns.several(self.barriers.end, float('inf'))
        self.context = self.barriers.before.copy()
        for moment, index in enumerate(self.barriers.operators, 1):
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
        Return which operators, and which values, may be of use again after their first barrier.

        What is read across a barrier, and what that is made from.  A barrier
        of one row may run again on the other side, without more input.
        """
        operators = np.zeros(len(self.split.operators), dtype=bool)
        values = np.zeros(len(self.split.rows), dtype=bool)
        for value in self.split.graph.output_values:
            values[value] = self.window[value, 1] < self.barriers.end
        for op in reversed(self.split.operators):
            index, inputs = op.operator.id, list(op.operator.inputs)
            again = any(values[v] for v in op.operator.outputs if v is not None)
            crossing = self.window[inputs, 1] < self.context[index]
            ahead = self.window[inputs, 1] < self.barriers.end
            values[inputs] |= crossing | (again & ahead & (not self._single(index)))
            operators[index] = again or self._single(index)
        return operators, values

    def _single(self, index: int) -> bool:
        return self.split.operators[index].rows == 1 and index in self.barriers.operators

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
        before, after = self.barriers.before, self.barriers.after
        windows = []
        for value in range(len(self.split.rows)):
            maker = producer.get(value)
            first = min((self.context[i] for i in consumers[value]), default=self.barriers.end)
            windows.append((0, first) if maker is None else (after[maker], before[maker]))
        return np.array(windows, dtype=np.int64).reshape(-1, 2)

    def _coverage(self) -> None:
        """Every needed row is computed by one of the sides, in time for the first barrier."""
        for index, fraction in enumerate(self.facts.fraction):
            if fraction > 0:
                self.rows.add([(-1.0, self.early[side][index]) for side in SIDES], -fraction)

    def _reading(self) -> None:
        """Let each side read no more than it has received or computed."""
        for op in self.split.operators:
            index = op.operator.id
            for position, value in enumerate(op.operator.inputs):
                for side in SIDES:
                    self._read_rows(side, index, position, value)
        for value in set(self.split.graph.output_values):
            self._read(ROBOT, value, [], -1.0, False)

    def _read_rows(self, side: str, index: int, position: int, value: int) -> None:
        height, rows = self.split.rows[value], self.split.operators[index].rows
        low, high = int(self.fewest[side][index]), int(self.most[side][index])
        for line in self.facts.lines(index, position, low, high):
            slope, limit = line.slope * rows / height, -line.offset / height
            if slope <= 0 and limit >= 0:
                continue
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
        """Each barrier first runs on one side, which has all that the barrier needs."""
        heaviest = self._heaviest()
        for moment, (index, whole) in enumerate(
                zip(self.barriers.operators, self.barriers.whole), 1):
            on_robot = self.columns.new(integral=index in heaviest)
            rows = self.split.operators[index].rows
            for side, (factor, rest) in {ROBOT: (1.0, 0.0), SERVER: (-1.0, 1.0)}.items():
                self.rows.add([(factor / rows, on_robot), (-1.0, self.early[side][index])],
                              -rest / rows)
                for value in whole:
                    share = float(self.facts.needed[value].mean())
                    self._read(side, value, [(factor * share, on_robot)], -rest * share,
                               self.window[value, 1] == moment)

    def _heaviest(self) -> set[int]:
        """Return barriers of which it matters that they run on one side, and not a bit on each."""
        nbytes = self.facts.nbytes
        heavy = nbytes[list(self.split.graph.inputs)].sum() / 20
        weight = {index: nbytes[list(whole)].sum() for index, whole
                  in zip(self.barriers.operators, self.barriers.whole)}
        ranked = sorted(weight, key=lambda index: -weight[index])
        return {index for index in ranked[:_CHOICES] if weight[index] > heavy}

    def solve(self, link: LinkModel) -> float:
        """Return seconds that no such schedule is below, infinity if there is none."""
        if not self.possible:
            return float('inf')
        rows = Rows()
        end = self.barriers.end
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
        if result.status == _INFEASIBLE:
            return float('inf')
        bound = result.mip_dual_bound if any(self.columns.integral) else result.fun
        return 0.0 if bound is None or not np.isfinite(bound) else float(bound) * self.facts.alone

    def _window(self, rows: Rows, link: LinkModel, start: int, stop: int) -> None:
        """Devices and link do no more between two moments than there is time for."""
        unit, whole = self.facts.alone, (start, stop) == (0, self.barriers.end)
        hop = (link.overhead + link.delay) / unit if whole else 0.0
        span = [(-1.0, self.moment[stop - 1])]
        if start:
            span.append((1.0, self.moment[start - 1]))
        within = np.flatnonzero((self.barriers.after >= start) & (self.barriers.before <= stop))
        last = stop == self.barriers.end
        for side, idle in ((ROBOT, 0.0), (SERVER, 2 * hop)):
            computed = self.total[side] if last else self.early[side]
            seconds = self.facts.seconds(side, self.most) / unit
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
        received = (self.received if stop == self.barriers.end else self.early_received)[side]
        seconds = self.facts.nbytes / (rate * self.facts.alone)
        return [(seconds[v], received[v]) for v in within if seconds[v] > 0]
