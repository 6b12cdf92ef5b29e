# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""
Inferences in model time on a link whose rate changes, with rows that the robot computes itself.

Devices and link do as in `judge/simulator.py`, but every transfer has the rate
of its moment; and a robot that waits works by itself as in
`runtime/execution/straggler_mitigation.py`, by the same rules.  Planners play schedules so at
steady rates, replays on recorded ones.
"""
from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
import math
from typing import Protocol

from intradp_ros.profiling.profile import JoinCost
from intradp_ros.runtime.execution.local_catch_up import owed, steps_to, stride
from intradp_ros.schedule.cost import CostModel, LinkModel
from intradp_ros.schedule.joins import joins_of
from intradp_ros.schedule.schedule import (
    Compute,
    Receive,
    ROBOT,
    Schedule,
    Send,
    SERVER,
    SIDES,
    Step,
    Transfer,
)
from intradp_ros.split.regions.region import Region
from intradp_ros.systems.sharing.judge.lateness import LateThreshold, NEVER_LATE
from intradp_ros.systems.sharing.judge.simulator import step_costs
from intradp_ros.systems.sharing.partition.lowering import lower
from intradp_ros.systems.sharing.partition.partition import Partition

#: Seconds that preparing a step of own work takes (`compile_steps`).
PREPARING = 30e-6
_FREE = JoinCost()
Rows = tuple[int, Region, None]


class Carrier(Protocol):
    """A link with a rate that changes."""

    def carried_by(self, start: float, mbit: float) -> float:
        """Return when so many Mbit are across that began to cross at `start`."""


@dataclass(frozen=True, slots=True)
class Steady:
    """A link of one rate in Mbit/s."""

    mbps: float

    def carried_by(self, start: float, mbit: float) -> float:
        """Return when so many Mbit are across that began to cross at `start`."""
        return start + mbit / self.mbps


class CatchUpPlayer:
    """
    Plays one schedule; what own work takes is computed once and kept.

    Of `link` all counts but the rate itself.
    """

    def __init__(self, cost: CostModel, link: LinkModel, partition: Partition) -> None:
        self.cost, self.split, self.overhead = cost, cost.split, link.overhead
        self.down_ratio = link.down / link.up
        self.schedule: Schedule = lower(self.split, partition)
        costs = step_costs(self.schedule, cost, link)
        self.moves = [costs.transfer[t.id] for t in self.schedule.transfers]
        self.joins = {side: [cost.joining.get(side, _FREE).seconds(*joined) for joined in joins_of(
            self.split, self.schedule, side, has_inputs=side == ROBOT)] for side in SIDES}
        self.owed = owed(self.schedule, SERVER)
        self.steps: dict[object, list[Compute]] = {}

    @property
    def crosses(self) -> bool:
        """Whether anything crosses the link."""
        return bool(self.schedule.transfers)

    def seconds(self, link: Carrier, start: float, late: LateThreshold = NEVER_LATE) -> float:
        """Return what an inference takes from `start` on, if rows are late as that says."""
        return _Playing(self, link, start, late).run()

    def took(self, side: str, step: Compute) -> float:
        """Return the seconds of a step."""
        return float(self.cost.seconds[side][step.operator][step.region.rows])


@dataclass
class _Playing:
    """One inference: how far both sides are, and what came when."""

    player: CatchUpPlayer
    link: Carrier
    start: float
    late: LateThreshold
    arrived: dict[int, float] = field(default_factory=dict)
    mine: set[int] = field(default_factory=set)
    made: list[Rows] = field(default_factory=list)

    def __post_init__(self) -> None:
        """Begin at the start."""
        self.now, self.place = {ROBOT: self.start, SERVER: self.start}, {ROBOT: 0, SERVER: 0}
        self.free = [self.start] * 2
        self.working = False

    def run(self) -> float:
        """Run to the end of the robot's program; return the seconds."""
        while True:
            step = self._go(ROBOT)
            if step is None:
                return self.now[ROBOT] - self.start
            self._go(SERVER)
            begin = self._patient
            if self.arrived.get(step.transfer, math.inf) > begin:
                self.now[ROBOT] = begin
                self._work()

    def _go(self, side: str) -> Receive | None:
        """Run a side up to what it must wait for; None at the end."""
        program = self.player.schedule.programs[side]
        while self.place[side] < len(program):
            step = program[self.place[side]]
            if isinstance(step, Receive) and step.transfer not in self.mine:
                came = self.arrived.get(step.transfer, math.inf)
                if came == math.inf or (side == ROBOT and came > self._patient):
                    return step
                self.now[side] = max(
                    self.now[side] + self.player.moves[step.transfer].receive, came)
            self._other(side, step)
            self.place[side] += 1
        return None

    @property
    def _patient(self) -> float:
        """Until when the robot would wait for a transfer."""
        return self.now[ROBOT] if self.working else max(
            self.now[ROBOT] + self.late.waited, self.start + self.late.ran)

    def _other(self, side: str, step: Step) -> None:
        if isinstance(step, Compute):
            self.now[side] += self.player.took(side, step) \
                + self.player.joins[side][self.place[side]]
        elif isinstance(step, Send):
            cost, player = self.player.moves[step.transfer], self.player
            begin = max(self.now[side] + cost.encode, self.free[cost.lane]) + player.overhead
            mbit = cost.nbytes * 8e-6 / (player.down_ratio if side == SERVER else 1.0)
            self.free[cost.lane] = self.link.carried_by(begin, mbit)
            self.arrived[step.transfer] = self.free[cost.lane] + cost.later
            self.now[side] += cost.send
            if side == ROBOT:
                self.made.append(_rows(player.schedule.transfers[step.transfer]))

    def _work(self) -> None:
        """Compute some of what is owed, until the program can go on."""
        self.working, now, player = True, self.now[ROBOT], self.player
        left = self._left()
        missing = [t for t in player.owed if t.id in left and self.arrived.get(
            t.id, math.inf) > now]
        wanted = stride(missing, player.split.folded)
        steps = self._steps(wanted, now)
        now += PREPARING * len(steps)
        ready, done = self._ready(), True
        for step in steps:
            if ready <= now:
                done = False
                break
            now += player.took(ROBOT, step)
            outputs = player.split.operators[step.operator].operator.outputs
            self.made += [(value, step.region, None) for value in outputs if value is not None]
        self.now[ROBOT] = now
        if done:
            self.mine |= {t.id for t in wanted}

    def _left(self) -> set[int]:
        rest = self.player.schedule.programs[ROBOT][self.place[ROBOT]:]
        return {s.transfer for s in rest if isinstance(s, Receive)} - self.mine

    def _ready(self) -> float:
        """Return when the program can compute or send something again, or ends."""
        ready = 0.0
        for step in self.player.schedule.programs[ROBOT][self.place[ROBOT]:]:
            if not isinstance(step, Receive):
                break
            if step.transfer not in self.mine:
                ready = max(ready, self.arrived.get(step.transfer, math.inf))
        return ready

    def _steps(self, wanted: Sequence[Transfer], now: float) -> list[Compute]:
        came = tuple(t for t in self.player.owed
                     if t.id in self.mine or self.arrived.get(t.id, math.inf) <= now)
        key = (tuple(wanted), came, tuple(self.made), self.place[ROBOT])
        if key not in self.player.steps:
            split = self.player.split
            held: list[Rows] = [(v, split.whole(v), None) for v in split.graph.inputs]
            held += [*self.made, *map(_rows, came), *self._kept()]
            self.player.steps[key] = steps_to(split, held, wanted)
        return self.player.steps[key]

    def _kept(self) -> list[Rows]:
        """Return the rows that the program has computed and still needs."""
        program, place = self.player.schedule.programs[ROBOT], self.place[ROBOT]
        graph, operators = self.player.split.graph, self.player.split.operators
        read = {*graph.output_values}
        for step in program[place:]:
            if isinstance(step, Compute):
                read |= set(operators[step.operator].operator.inputs)
            elif isinstance(step, Send):
                read.add(self.player.schedule.transfers[step.transfer].value)
        return [(value, step.region, None) for step in program[:place]
                if isinstance(step, Compute)
                for value in operators[step.operator].operator.outputs if value in read]


def _rows(transfer: Transfer) -> Rows:
    return transfer.value, transfer.region, None
