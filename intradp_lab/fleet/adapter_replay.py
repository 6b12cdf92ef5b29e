# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""
The adapter over changing air and devices that leave, in model time, compared with a static plan.

Frames arrive at a steady rate.  Each goes by the plan that is in use when it
arrives; all of them are one task graph, which the event simulator plays with
the rates as they change, so frames that are in flight at a switch or at a
failure count as they come.  A frame whose device has left is computed by the
source alone once the device has been silent for `SILENCE`, as the runtime does.
"""
from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
import math

import numpy as np
import numpy.typing as npt

from intradp_ros.link.outlook import MOVED, RateOutlook
from intradp_ros.planning.fleet_costs import FleetCosts
from intradp_ros.planning.placement_tasks import placement_tasks
from intradp_ros.planning.quality import Quality
from intradp_ros.planning.transfer_order import CHUNK_BYTES
from intradp_ros.schedule.event_simulator import Chunks, simulate, Simulation
from intradp_ros.schedule.task_graph import ComputeTask, Task, TaskGraph, TransferTask
from intradp_ros.systems.fleet.adapter import (
    Act,
    as_observed,
    Assignment,
    assignment_of,
    begin,
    numbered,
    observe,
    Observed,
)
from intradp_ros.systems.fleet.planner import plan_fleet

Numbers = npt.NDArray[np.float64]

#: Seconds: between looks at rates; until a new plan is ready while the old one goes on; until a
#: silent device is given up by frames, and by the coordinator (doc/spine.md).
BEAT, READY, SILENCE, GONE = 0.1, 0.1, 0.6, 1.0
#: Seconds until a plan that is late is looked at again where nothing has changed.
LATE_AGAIN = 0.5
#: A rate that was recorded as 0 (bytes per second).
LEAST = 12_500.0

ADAPTER, STATIC, ORACLE = 'adapter', 'static', 'oracle'


@dataclass(frozen=True)
class Scenario:
    """Rates of the air by time, and devices that are away: name, from, until."""

    name: str
    seconds: float
    rates: tuple[tuple[float, float], ...]
    away: tuple[tuple[str, float, float], ...] = ()

    @cached_property
    def _steps(self) -> tuple[Numbers, Numbers]:
        times, rates = (np.array(column) for column in zip(*self.rates))
        return times, np.maximum(rates, LEAST)

    @property
    def changes(self) -> list[tuple[float, float]]:
        """The rates from each time on (bytes per second)."""
        times, rates = self._steps
        return list(zip(times.tolist(), rates.tolist()))

    def mean_rate(self, start: float, stop: float) -> float:
        """Return the mean rate between two times."""
        times, rates = self._steps
        points = np.linspace(max(0.0, start), max(stop, start + 1e-3), 20, endpoint=False)
        return float(rates[np.maximum(np.searchsorted(times, points, 'right') - 1, 0)].mean())

    def gone(self, now: float, later: float = 0.0) -> frozenset[str]:
        """Return the devices that are away, and have been for `later` seconds."""
        return frozenset(name for name, start, stop in self.away if start + later <= now < stop)

    def leaves(self, name: str, start: float, stop: float) -> float:
        """Return when a device leaves between two times, or is away; infinite: it does not."""
        return min((max(begin, start) for who, begin, end in self.away
                    if who == name and begin < stop and end > start), default=math.inf)


@dataclass
class Played:
    """How a policy went: seconds of each frame, by whom, and what was done."""

    latencies: list[float] = field(default_factory=list)
    by_source: int = 0
    switches: list[float] = field(default_factory=list)
    missed: float = 0.0
    pause_frames: float = 0.0

    @property
    def lost(self) -> int:
        """Return the frames that have no result."""
        return sum(not math.isfinite(seconds) for seconds in self.latencies)


Choice = Callable[[float], Assignment]
"""The plan of a frame that arrives at a time."""


class Replay:
    """One scene and scenario; `air` is the medium whose rate changes."""

    def __init__(self, declared: FleetCosts, scenario: Scenario, fps: float,
                 air: str = 'air') -> None:
        self.declared, self.scenario, self._air = declared, scenario, air
        self._interval = 1 / fps
        self._tasks: dict[Assignment, tuple[Task, ...]] = {}
        self._alone: Assignment = ((((declared.source, declared.samples),),)
                                   * len(declared.model.nodes))
        self._changes = {air: scenario.changes}
        self.plans: list[Assignment] = []

    def static(self) -> Played:
        """Play the plan for the fleet as it is declared, to the end."""
        state = begin(self.declared, 0.0)
        assert state.plan is not None
        kept = assignment_of(self.declared, state.plan.placement)
        return self._play(lambda now: kept, [])

    def adapter(self) -> Played:
        """Play what the adapter decides; it sees rates of the beat before, and a leave late."""
        state = begin(self.declared, 0.0)
        assert state.plan is not None
        outlook = RateOutlook()
        used = [(0.0, assignment_of(self.declared, state.plan.placement))]
        switches, looked = [], 0.0
        known = self.declared.topology.medium(self._air).bytes_per_second
        for beat in range(1, int(self.scenario.seconds / BEAT)):
            now = beat * BEAT
            outlook.saw(self.scenario.mean_rate(now - BEAT, now), now)
            rate, gone = outlook.rate(now), self.scenario.gone(now, GONE)
            if abs(rate / known - 1) > MOVED:
                known = rate
            seen = Observed({self._air: known}, gone)
            late = state.late_since is not None and now - looked >= LATE_AGAIN
            if seen == state.observed and not late:
                continue
            looked = now
            state, decision = observe(state, self.declared, seen, now)
            if decision.act in (Act.SWITCH, Act.REPLAN, Act.STAY, Act.REORDER) and decision.plan:
                plan = assignment_of(decision.costs, decision.plan.placement)
                if plan != used[-1][1]:
                    used.append((now + READY, plan))
                    switches.append(now + READY)
        times = [start for start, _ in used]

        def choose(now: float) -> Assignment:
            return used[int(np.searchsorted(times, now, 'right')) - 1][1]

        self.plans = list(dict.fromkeys(plan for _, plan in used))
        return self._play(choose, switches)

    def oracle(self, plans: Sequence[Assignment]) -> Played:
        """
        Play each frame by the plan that will be quickest for it: it knows all rates and leaves.

        It has the plans given, and those for every rate that occurs; a switch
        takes it no time.
        """
        known = dict.fromkeys([*plans, self._alone, *self._plans_of_rates()])

        def choose(now: float) -> Assignment:
            return min(known, key=lambda plan: self._seconds(plan, now))

        return self._play(choose, [])

    def _plans_of_rates(self) -> list[Assignment]:
        rates = np.unique(np.quantile([rate for _, rate in self.scenario.changes],
                                      np.linspace(0, 1, 7)))
        found = []
        for gone in {frozenset[str](), *(frozenset([name]) for name, _, _ in self.scenario.away)}:
            for rate in rates.tolist():
                costs = as_observed(self.declared, Observed({self._air: rate}, gone))
                for wanted in (costs, replace(costs, quality=Quality())):
                    found.append(assignment_of(costs, plan_fleet(wanted).best.placement))
        return found

    def _seconds(self, plan: Assignment, now: float) -> float:
        """Return what a frame takes by a plan, alone; infinite where a device of it leaves."""
        tasks = self._tasks_of(plan)
        finish = float(self._simulated(tasks, {0: now}).finish[-1])
        names = {name for shares in plan for name, _ in shares}
        if min(self.scenario.leaves(name, now, finish) for name in names) < math.inf:
            return math.inf
        if max(self._busy(tasks).values(), default=0.0) > self._interval:
            return 1e6 + finish
        return finish - now

    @staticmethod
    def _busy(tasks: Sequence[Task]) -> dict[str, float]:
        busy: dict[str, float] = {}
        for task in tasks:
            if isinstance(task, ComputeTask):
                busy[task.device] = busy.get(task.device, 0.0) + task.seconds
        return busy

    def _simulated(self, tasks: Sequence[Task], release: dict[int, float]) -> Simulation:
        graph = TaskGraph(tuple(tasks), release)
        return simulate(graph, self.declared.topology, Chunks(CHUNK_BYTES), self._changes)

    def _tasks_of(self, plan: Assignment) -> tuple[Task, ...]:
        if plan not in self._tasks:
            groups = numbered(self.declared, plan)
            assert groups is not None
            self._tasks[plan] = placement_tasks(self.declared, groups, 1).graph.tasks
        return self._tasks[plan]

    def _play(self, choose: Choice, switches: list[float]) -> Played:
        """Play all frames; again, with frames by the source, while a plan meets a device gone."""
        count = int(self.scenario.seconds / self._interval)
        starts = [frame * self._interval for frame in range(count)]
        plans = [choose(now) for now in starts]
        begins, hurt = list(starts), np.zeros(count, dtype=bool)
        while True:
            finish = self._finishes(plans, begins)
            fresh = [frame for frame in range(count) if not hurt[frame]
                     and self._fails(plans[frame], starts[frame], finish[frame]) < math.inf]
            if not fresh:
                break
            # What a hurt frame holds up matters: only the earliest of a leave, then again.
            first = fresh[0]
            for frame in fresh:
                failed = self._fails(plans[frame], starts[frame], finish[frame])
                if frame == first or failed <= starts[frame]:
                    left = self._left(plans[frame], failed)
                    begins[frame] = max(starts[frame], left + SILENCE)
                    plans[frame], hurt[frame] = self._alone, True
        return self._summary(starts, finish, int(hurt.sum()), switches)

    def _fails(self, plan: Assignment, start: float, stop: float) -> float:
        names = {name for shares in plan for name, _ in shares} - {self.declared.source}
        return min((self.scenario.leaves(name, start, stop) for name in names), default=math.inf)

    def _left(self, plan: Assignment, failed: float) -> float:
        """Return when the device that fails a frame left."""
        names = {name for shares in plan for name, _ in shares}
        return max((start for name, start, stop in self.scenario.away
                    if name in names and start <= failed <= stop), default=failed)

    def _finishes(self, plans: Sequence[Assignment], begins: Sequence[float]) -> list[float]:
        """Return when each frame is done, all of them on the same devices and air."""
        keys: list[tuple[float, int, int]] = []
        parts = [self._tasks_of(plan) for plan in plans]
        for frame, (tasks, start) in enumerate(zip(parts, begins)):
            alone = self._simulated(tasks, {0: start}).start.tolist()
            keys += [(max(begin, start), frame, index) for index, begin in enumerate(alone)]
        keys.sort()
        place = {(frame, index): number for number, (_, frame, index) in enumerate(keys)}
        found: list[Task] = []
        release: dict[int, float] = {}
        for number, (_, frame, index) in enumerate(keys):
            task = parts[frame][index]
            task = replace(task, after=tuple(place[frame, k] for k in task.after))
            if isinstance(task, TransferTask):
                task = replace(task, priority=float(frame))
            if index == 0:
                release[number] = begins[frame]
            found.append(task)
        finish = self._simulated(found, release).finish
        return [float(finish[place[frame, len(part) - 1]]) for frame, part in enumerate(parts)]

    def _summary(self, starts: Sequence[float], finish: Sequence[float], by_source: int,
                 switches: list[float]) -> Played:
        latencies = [end - start for start, end in zip(starts, finish)]
        most = self.declared.quality.latency
        return Played(latencies, by_source, switches,
                      self._interval * sum(seconds > most * (1 + 1e-9) for seconds in latencies),
                      self._pause(starts, finish, switches))

    def _pause(self, starts: Sequence[float], finish: Sequence[float],
               switches: Sequence[float]) -> float:
        """Return the longest time without a result at a switch, in frames beyond the usual one."""
        longest = 0.0
        ends = np.maximum.accumulate(finish)
        for now in switches:
            if any(start <= now <= start + GONE + READY + 2 * BEAT
                   for _, start, _ in self.scenario.away):
                continue  # the pause of a failure is the failure's
            frame = int(np.searchsorted(starts, now))
            if 0 < frame < len(starts):
                longest = max(longest, (ends[frame] - ends[frame - 1]) / self._interval - 1)
        return longest
