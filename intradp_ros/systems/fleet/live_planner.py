# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""
Plans of a model for a fleet as it is now: what devices measured goes in, plans come out.

What is to be done is decided by `adapter.py`; rates are those of
`cluster/fleet_view.py`, fed by the heartbeats of devices.
"""
from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
import math
import statistics
import threading

from intradp_ros.cluster.fleet_messages import Heartbeat
from intradp_ros.cluster.fleet_view import FleetView
from intradp_ros.planning.fleet_costs import FleetCosts
from intradp_ros.planning.quality import Quality
from intradp_ros.schedule.stage_plan import StagePlan
from intradp_ros.systems.fleet.adapter import (
    Act,
    AdapterState,
    as_observed,
    begin,
    Decision,
    observe,
    Observed,
    Planner,
)
from intradp_ros.systems.fleet.finer_nodes import plan_in_nodes
from intradp_ros.systems.fleet.partitioner import NothingFits
from intradp_ros.systems.fleet.plan_text import describe
from intradp_ros.systems.fleet.planner import FleetPlan, plan_fleet, stage_plan

#: Answers that recent figures are made of.
LATELY = 100


@dataclass
class QoeStatistics:
    """Counts since the start; `latency` and `missed_share` are of the last `LATELY` answers."""

    quality: Quality
    frames: int = 0
    missed: int = 0
    joules: float = 0.0
    switches: int = 0
    _lately: deque[float] = field(default_factory=lambda: deque(maxlen=LATELY))

    def answered(self, latencies: Iterable[float], joules: float) -> None:
        """Take the seconds of answers (infinite without results), and the joules of each."""
        for seconds in latencies:
            self.frames += 1
            self.missed += self._late(seconds)
            self.joules += joules
            self._lately.append(seconds)

    @property
    def latency(self) -> float:
        """The middle latency (s); nan before the first answer."""
        lately = tuple(self._lately)  # answers come on another thread
        return statistics.median(lately) if lately else math.nan

    @property
    def missed_share(self) -> float:
        """The share of answers that came later than the target, or without results."""
        lately = tuple(self._lately)
        return sum(map(self._late, lately)) / max(1, len(lately))

    def _late(self, seconds: float) -> bool:
        return math.isinf(seconds) or seconds > self.quality.latency


class LivePlanner:
    """
    The planner of a coordinator; any thread may call it.

    `declared` is the fleet at its full rates, with the target; `fine` the same with
    the nodes that those of `declared` were merged of, which are merged anew where
    nothing fits.  A plan may take seconds to make.
    """

    def __init__(self, declared: FleetCosts, planner: Planner = plan_fleet,
                 fine: FleetCosts | None = None) -> None:
        self.statistics = QoeStatistics(declared.quality)
        self._declared, self._planner, self._fine = declared, planner, fine
        self._tried: Observed | None = None  # in finer nodes, in vain
        self._view = FleetView(declared.topology, (declared.source,))
        self._alive = frozenset(declared.topology.names)
        self._left_out: frozenset[str] = frozenset()
        self._state: AdapterState | None = None
        self._in_use: StagePlan | None = None
        self.why = ''  # there is no plan
        self._holds = False
        self._planning = threading.RLock()
        self._answering = threading.Lock()  # what is heard while a plan is made does not wait

    def heard(self, beat: Heartbeat, now: float) -> None:
        """Take what a device measured, and how what it asked for was answered."""
        self._view.heard(beat, now)
        if beat.device == self._declared.source:
            plan = self._state.plan if self._state else None
            with self._answering:
                self.statistics.answered(beat.answers, sum(plan.joules.values()) if plan else 0.0)

    def plan(self, alive: Iterable[str], now: float) -> StagePlan | None:
        """Return the plan for the devices that are there; None where nothing fits."""
        with self._planning:
            self._alive = frozenset(alive)
            return self._decided(now)

    def look(self, now: float) -> StagePlan | None:
        """Return the plan that should be in use now; None where there is none."""
        with self._planning:
            return self._in_use if self._state is None else self._decided(now)

    def adapt(self, quality: Quality | None, without: Iterable[str], now: float,
              ) -> StagePlan | None:
        """Plan anew for another target, leave devices out from now on, and go on adapting."""
        with self._planning:
            self._holds, self._left_out = False, frozenset(without)
            if quality:
                self._declared = replace(self._declared, quality=quality)
                self.statistics.quality = quality
            self._state = None
            return self._decided(now)

    def hold(self) -> None:
        """Keep the plan in use as long as its devices are there."""
        self._holds = True

    def preview(self, quality: Quality | None, without: Iterable[str], now: float,
                ) -> tuple[str, StagePlan | None]:
        """Return the text of the plan that would be made, and the plan; change nothing."""
        with self._planning:
            declared = replace(self._declared, quality=quality or self._declared.quality)
            gone = frozenset(declared.topology.names) - self._alive | self._view.low
            costs = as_observed(declared, Observed(
                self._view.known_rates(), gone | frozenset(without) - {declared.source},
                self._view.memory()))
            try:
                best = self._planner(costs).best
            except NothingFits as error:
                return str(error), None
            return describe(costs, best), stage_plan(costs, best.placement, best.order)

    def text(self, now: float) -> str:
        """Return the plan in use for people, with what the network was measured to give."""
        state = self._state
        if state is None or state.plan is None:
            return f'no plan: {self.why or "nothing fits"}'
        media = [f'{name}: {text}' for name, text in self.media(now).items()]
        return '\n'.join([describe(state.costs, state.plan), *media])

    def media(self, now: float) -> dict[str, str]:
        """Return for people what the network was measured to give, by medium."""
        return {name: f'{8e-6 * found.value:.1f} Mbit/s '
                + (f'(measured {found.age:.0f} s ago)' if found.measured else '(declared)')
                for name, found in self._view.media(now).items()}

    @property
    def predicted(self) -> FleetPlan | None:
        """What is predicted of the plan in use."""
        return self._state.plan if self._state else None

    def _decided(self, now: float) -> StagePlan | None:
        """Return the plan in use after looking at what is there now."""
        observed = self._observed(now)
        if self._declared.source in observed.gone:
            self.why = f'the source {self._declared.source} is not there'
            return None
        if self._holds and self._in_use and not observed.gone.intersection(self._in_use.devices):
            return self._in_use
        state = self._state
        if state is None:
            self._begin(observed, now)
        elif observed != state.observed or state.late_since is not None or state.plan is None:
            self._state, decision = observe(state, self._declared, observed, now,
                                            planner=self._planner)
            self._take(decision)
        if self._in_use is None and self._fine and observed != self._tried:
            self._tried = observed
            self._begin_finer(self._fine, observed, now)
        return self._in_use

    def _begin_finer(self, fine: FleetCosts, observed: Observed, now: float) -> None:
        """Plan in finer nodes, from now on, if something fits in these."""
        wanted = replace(fine, quality=self._declared.quality)
        try:
            costs, _ = plan_in_nodes(as_observed(wanted, observed))
        except NothingFits:
            return
        self._declared = replace(self._declared, model=costs.model)
        self._begin(observed, now)

    def _begin(self, observed: Observed, now: float) -> None:
        try:
            state = begin(as_observed(self._declared, observed), now, self._planner)
        except NothingFits as error:
            self._in_use, self.why = None, str(error)
            return
        self._state = replace(state, observed=observed)
        self._take(Decision(Act.REPLAN, state.plan, state.costs))

    def _take(self, decision: Decision) -> None:
        """Note the plan from now on; one that only reorders transfers is the same division."""
        found, self.why = decision.plan, decision.why
        plan = stage_plan(decision.costs, found.placement, found.order) if found else None
        self.statistics.switches += bool(self._in_use and plan and replace(
            plan, order=self._in_use.order) != self._in_use)
        self._in_use = plan

    def _observed(self, now: float) -> Observed:
        gone = frozenset(self._declared.topology.names) - self._alive | self._view.low
        return Observed(self._view.rates(now),
                        gone | self._left_out - {self._declared.source}, self._view.memory())
