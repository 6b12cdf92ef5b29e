# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""Plans sessions of training for a coordinator: the devices that are there, while one is asked."""
from __future__ import annotations

from collections.abc import Callable, Mapping

from intradp_ros.cluster.fleet_messages import Heartbeat
from intradp_ros.runtime.member.planner import Planner, Proposal
from intradp_ros.runtime.member.role import Plan
from intradp_ros.systems.training.service.role import read_state_name
from intradp_ros.systems.training.service.session_fleet import SessionFleet
from intradp_ros.systems.training.service.session_plan import FORMAT, TrainingSession
from intradp_ros.wire.frames import Control

#: Seconds for which this coordinator must lead until it takes over what another may go on with.
PATIENCE = 1.5
#: Takes over a training that nobody leads: its number, task, and whether it is paused.
TakeOver = Callable[[int, str, bool], None]


class TrainingPlanner(Planner):
    """
    Plans for `fleet`, the training at hand; without one there is no plan.

    Where devices report a training that neither is at hand nor ended here, its coordinator was
    lost: `take_over` is asked to go on with it.
    """

    format = FORMAT  # noqa: A003

    def __init__(self, take_over: TakeOver) -> None:
        self.fleet: SessionFleet | None = None
        self.ended_trainings: set[int] = set()
        self.speeds: dict[str, float] = {}
        self._take_over = take_over
        self._processes: dict[str, int] = {}
        self._tags: dict[str, Mapping[str, int]] = {}
        self._looked = self._leads_since = float('-inf')

    @property
    def rests(self) -> bool:  # type: ignore[override]
        """Whether nothing is to be trained."""
        return self.fleet is None

    def plan(self, alive: frozenset[str], now: float) -> Proposal | None:
        """Return the session of the devices that are there, None if nothing is to be trained."""
        fleet = self.fleet
        if fleet is None:
            self._look_for_orphans(alive, now)
            return None
        session = fleet.session(alive)
        return Proposal(session) if session else None

    def heard(self, beat: Heartbeat, now: float) -> None:
        """Notice that a device is another process now, and what it holds."""
        before = self._processes.get(beat.device)
        self._processes[beat.device] = beat.incarnation
        self._tags[beat.device], self.speeds[beat.device] = beat.tags, beat.speed
        fleet = self.fleet
        if before is not None and before != beat.incarnation and fleet:
            fleet.forget(beat.device)

    def forget(self, device: str) -> None:
        """Forget what a device said, and what it holds: another process may come in its name."""
        for known in (self._processes, self._tags, self.speeds):
            known.pop(device, None)
        if fleet := self.fleet:
            fleet.forget(device)

    def handle(self, peer: str, frame: Control) -> None:
        """Take lines of a device; those for no training at hand are of the past."""
        fleet = self.fleet
        if fleet:
            fleet.handle(peer, frame)

    def text(self, plan: Plan) -> str:
        """Return a session in a line for people."""
        assert isinstance(plan, TrainingSession)
        return f'{plan.task} on {", ".join(plan.seats)}'

    def _look_for_orphans(self, alive: frozenset[str], now: float) -> None:
        """Go on with the training of which the most devices have something."""
        if now - self._looked > PATIENCE:
            self._leads_since = now  # who does not lead is not asked for a plan
        self._looked = now
        if now - self._leads_since < PATIENCE:
            return
        if found := self.holds(alive):
            paused, training, task = found
            self._take_over(training, task, paused)

    def holds(self, alive: frozenset[str], task: str = '') -> tuple[bool, int, str] | None:
        """
        Return the training, of a task or of any, of which the most devices have something.

        That is, whether it is paused, its number and its task; None if none is held that has not
        ended here.
        """
        found = [read for name in sorted(alive) for text in self._tags.get(name, ())
                 if (read := read_state_name(text)) and read[1] not in self.ended_trainings
                 and task in ('', read[2])]
        return max(found, default=None, key=lambda one: (
            sum(other[1] == one[1] for other in found), one[1]))
