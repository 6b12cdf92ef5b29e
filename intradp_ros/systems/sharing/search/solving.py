# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""What all solvers have in common: how they are called, and when they end."""
from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from intradp_ros.schedule.cost import CostModel, LinkModel
from intradp_ros.systems.sharing.judge.energy import latency, Objective
from intradp_ros.systems.sharing.judge.judge import Judge, Judged
from intradp_ros.systems.sharing.partition.partition import Partition

Stop = Callable[[], bool]


class Solver(Protocol):
    """
    Finds a good partition of a graph for a link.

    The result depends on the arguments alone, not on the machine's speed
    (unless `stop` does), and is never worse than those of `begin`.
    """

    def __call__(self, cost: CostModel, link: LinkModel, *, seed: int = 0, budget: int = 3000,
                 objective: Objective = latency, begin: Sequence[Partition] = (),
                 stop: Stop | None = None) -> Judged:
        """
        Return the best partition found.

        :param cost, link: what steps and transfers take.
        :param seed: of all that is drawn at random.
        :param budget: how many partitions may be judged, about.
        :param objective: what is minimised; by default the latency.
        :param begin: partitions to start from, in addition to the solver's own ones.
        :param stop: asked now and then whether to end early with what was found.
        """


@dataclass
class Trial:
    """Judges partitions for a solver until its budget is spent, and keeps the best."""

    judge: Judge
    objective: Objective = latency
    budget: int = 3000
    stop: Stop | None = None
    best: Judged | None = None
    stopped: bool = False

    def __call__(self, partition: Partition) -> Judged:
        """Judge a partition."""
        played = self.judge(partition)
        found = Judged(played.latency, partition, self.objective(played, self.judge.link))
        if self.best is None or found.price < self.best.price:
            self.best = found
        if self.judge.count % 100 == 0:
            self._look()
        return found

    def recurrence(self, partition: Partition) -> float:
        """Evaluate the recurrences of the paper; it counts as judging."""
        seconds = self.judge.recurrence(partition)
        if self.judge.count % 100 == 0:
            self._look()
        return seconds

    def _look(self) -> None:
        self.stopped = self.stopped or self.stop is not None and self.stop()

    @property
    def over(self) -> bool:
        """Whether the budget is spent, or the solver was stopped."""
        return self.stopped or self.judge.count >= self.budget

    def result(self) -> Judged:
        """
        Return the best partition of all that were judged.

        :raises RuntimeError: if none was judged.
        """
        if self.best is None:
            raise RuntimeError('the solver judged no partition')
        return self.best
