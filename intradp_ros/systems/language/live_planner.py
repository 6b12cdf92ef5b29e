# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""Plans language models for a coordinator: for the devices that are there."""
from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
import math
import secrets

from intradp_ros.cluster.fleet_messages import Heartbeat
from intradp_ros.cluster.fleet_view import FleetView
from intradp_ros.runtime.member.planner import Planner, Proposal
from intradp_ros.runtime.member.role import Plan
from intradp_ros.systems.language.arithmetic import bits_line
from intradp_ros.systems.language.costs import LanguageCosts
from intradp_ros.systems.language.estimate import play
from intradp_ros.systems.language.planner import NoPlanError, plan_language, Planned
from intradp_ros.systems.language.segment_plan import FORMAT, SegmentPlan

MakePlan = Callable[[LanguageCosts, str, frozenset[str]], Planned]
#: A plan is replaced where another is so much faster; looked at so often (s).
BETTER, EVERY = 0.85, 5.0
_NAME_BYTES = 8


class LanguagePlanner(Planner):
    """
    Plans one model; without its head there is no plan.  `log` takes lines for people.

    A plan for the same devices, for other rates or with other memory, keeps keys and values.
    """

    format = FORMAT  # noqa: A003

    def __init__(self, costs: LanguageCosts, head: str, log: Callable[[str], None],
                 make: MakePlan = plan_language) -> None:
        self.costs, self.head, self._log, self._make = costs, head, log, make
        self.devices = costs.topology.names
        self._view = FleetView(costs.topology)
        self._last: SegmentPlan | None = None
        self._alive: frozenset[str] = frozenset()
        self._looked = 0.0
        self._said = list[str]()  # of the last plan
        self._told = False  # that nothing fits any more

    def plan(self, alive: frozenset[str], now: float) -> Proposal | None:
        """Return the plan for the devices that are there; None if the model does not fit."""
        self._last, self._alive, self._told = None, alive, False
        found = self._planned(now)
        if found is None:
            return None
        said = [f'{found.answer}; {1e3 * found.seconds:.1f} ms a token are predicted',
                *filter(None, [self.bits(found.plan)])]
        if said != self._said:  # it may be asked again before the plan is in use
            for line in said:
                self._log(line)
        self._said = said
        return self._proposal(replace(found.plan, cache=secrets.token_hex(_NAME_BYTES)))

    def look(self, now: float) -> Proposal | None:
        """Return a plan for what has changed: a device's memory, or rates by much."""
        last = self._last
        if last is None:
            return None
        costs = self._costs(now)
        shrunk = any(costs.need(last.at(step), d.name).total > d.memory_bytes
                     for d in costs.topology.devices if d.name in last.slots
                     for step in range(len(last.steps) + 1))
        if not shrunk and now - self._looked < EVERY:
            return None
        self._looked = now
        found = self._planned(now)
        if found is None and not self._told:
            self._log(f'{self.why}; the plan in use stays')
        self._told = found is None
        if found is None or replace(found.plan, exact=last.exact) == replace(
                last, cache='', keeps=False):
            return None
        before = play(last.at(len(last.steps)), costs).seconds
        if not shrunk and found.seconds > BETTER * before:
            return None
        self._log(f'{found.answer}, as {"memory" if shrunk else "rates"} changed; '
                  f'{1e3 * found.seconds:.1f} ms a token are predicted')
        if set(found.plan.slots) <= set(last.slots) and set(last.slots) <= {
                *found.plan.participants} and found.plan.most_pages >= last.most_pages:
            return self._proposal(replace(found.plan, cache=last.cache, keeps=True))
        return self._proposal(replace(found.plan, cache=secrets.token_hex(_NAME_BYTES)))

    def heard(self, beat: Heartbeat, now: float) -> None:
        """Take the rates that a device measured, and the memory that it has for plans."""
        self._view.heard(beat, now)

    def bits(self, plan: SegmentPlan) -> str:
        """Return the line that says that a plan promises no bits; '' where it does."""
        return bits_line(plan.participants, {**self.costs.arithmetic, **self._view.arithmetic()})

    def text(self, plan: Plan) -> str:
        """Return a plan in a line for people."""
        assert isinstance(plan, SegmentPlan)
        held = ', '.join(
            f'{name}: {len(plan.blocks_of(name))} blocks, {len(plan.streamed(name))} streamed'
            for name in plan.slots)
        return held if plan.exact else f'{held}; {self.bits(plan) or "no promise of bits"}'

    def _planned(self, now: float) -> Planned | None:
        if self.head not in self._alive:
            self.why = f'the head {self.head} is not there'
            return None
        try:
            return self._make(self._costs(now), self.head, self._alive)
        except NoPlanError as error:
            self.why = str(error)
            return None

    def _proposal(self, plan: SegmentPlan) -> Proposal:
        self._last = replace(plan, exact=not self.bits(plan))
        return Proposal(self._last)

    def _costs(self, now: float) -> LanguageCosts:
        """Return the costs with rates and memory as they are now."""
        topology, memory, rates = self.costs.topology, self._view.memory(), self._view.rates(now)
        devices = tuple(replace(d, memory_bytes=min(d.memory_bytes, memory.get(d.name, math.inf)))
                        for d in topology.devices)
        media = tuple(replace(m, bytes_per_second=rates.get(m.name, m.bytes_per_second))
                      for m in topology.media)
        return replace(self.costs, topology=replace(topology, devices=devices, media=media),
                       arithmetic={**self.costs.arithmetic, **self._view.arithmetic()})
