# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""Plans language models for a coordinator: for the devices that are there."""
from __future__ import annotations

from collections.abc import Callable

from intradp_ros.runtime.member.planner import Planner, Proposal
from intradp_ros.runtime.member.role import Plan
from intradp_ros.systems.language.costs import LanguageCosts
from intradp_ros.systems.language.planner import NoPlanError, plan_language, Planned
from intradp_ros.systems.language.segment_plan import FORMAT, SegmentPlan

MakePlan = Callable[[LanguageCosts, str, frozenset[str]], Planned]


class LanguagePlanner(Planner):
    """Plans one model; without its head there is no plan.  `log` takes lines for people."""

    format = FORMAT  # noqa: A003

    def __init__(self, costs: LanguageCosts, head: str, log: Callable[[str], None],
                 make: MakePlan = plan_language) -> None:
        self.costs, self.head, self._log, self._make = costs, head, log, make

    def plan(self, alive: frozenset[str], now: float) -> Proposal | None:
        """Return the plan for the devices that are there; None if the model does not fit."""
        if self.head not in alive:
            return None
        try:
            found = self._make(self.costs, self.head, alive)
        except NoPlanError as error:
            self._log(str(error))
            return None
        self._log(f'{found.answer}; {1e3 * found.seconds:.1f} ms a token are predicted')
        return Proposal(found.plan)

    def text(self, plan: Plan) -> str:
        """Return a plan in a line for people."""
        assert isinstance(plan, SegmentPlan)
        return ', '.join(
            f'{name}: {len(plan.blocks_of(name))} blocks, {len(plan.streamed(name))} streamed'
            for name in plan.slots)
