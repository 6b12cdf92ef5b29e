# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""
Keeps a fleet on a plan: hears its devices, and changes the plan when they go or come back.

A plan is prepared by all its devices before it is committed; until then the
last one goes on.  A device that is silent is left out of the next plan; one
that has started anew, and so holds nothing, gets its part again.  Terms and
epochs only grow: devices refuse a plan that is older than theirs.
"""
from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
import secrets
import threading
import time

from intradp_ros.cluster.plan_id import NO_PLAN, PlanId
from intradp_ros.runtime.peer_channel import PeerChannel
from intradp_ros.runtime.pipeline.fleet_device import plan_id, plan_ids
from intradp_ros.runtime.pipeline.stage_worker import Log
from intradp_ros.schedule.stage_plan import StagePlan
from intradp_ros.wire.frames import Chunk, Control, ControlKind, Frame, MalformedFrameError
from intradp_ros.wire.quoting import quoted
from intradp_ros.wire.rejections import Rejections

MakePlan = Callable[[frozenset[str]], StagePlan | None]
_TERM_STEP = 1 << 16


@dataclass(frozen=True, slots=True)
class CoordinatorTimes:
    """
    Seconds.

    Devices are asked every `heartbeat`, and left out after `gone` of
    silence.  One is taken in, or back, when it was heard for `probation`.
    Until all that are expected were heard, the first plan waits for them up
    to `gathering`.  A plan that is not ready after `preparing` is given up;
    the next try comes `rest` later.
    """

    heartbeat: float = 0.1
    gone: float = 1.0
    probation: float = 0.5
    gathering: float = 3.0
    preparing: float = 20.0
    rest: float = 1.0


@dataclass
class _Member:
    """A device: since when it is heard without a pause, when last (s), and what it holds."""

    since: float
    heard: float
    held: frozenset[PlanId] = field(default_factory=frozenset)


@dataclass
class _Change:
    """A plan that is being prepared."""

    id: PlanId
    plan: StagePlan
    since: float
    ready: set[str] = field(default_factory=set)


class Coordinator:
    """
    Runs on a channel of its own; `make_plan` gives the plan for the devices that are there.

    `changed` is called when another plan is in use.
    """

    def __init__(self, channel: PeerChannel, make_plan: MakePlan, log: Log, *,
                 times: CoordinatorTimes = CoordinatorTimes(),
                 changed: Callable[[], None] = lambda: None) -> None:
        self.channel, self.make_plan, self.log, self.times = channel, make_plan, log, times
        self.rejections = Rejections()
        self.plan: StagePlan | None = None
        self.id = NO_PLAN
        self._changed = changed
        self._members: dict[str, _Member | None] = {}
        self._seen = NO_PLAN
        self._term = 0
        self._change: _Change | None = None
        self._rest = 0.0
        self._began = time.monotonic()
        self._planned: tuple[frozenset[str], StagePlan | None] = frozenset(), None
        self._lock = threading.RLock()
        self._stop = threading.Event()
        channel.listen(self.handle)
        self._thread = threading.Thread(target=self._run, name='coordinator', daemon=True)
        self._thread.start()

    def expect(self, names: Iterable[str]) -> None:
        """Ask for devices of these names from now on."""
        names = tuple(names)
        self.channel.open(names)
        with self._lock:
            for name in names:
                self._members.setdefault(name, None)

    @property
    def expected(self) -> tuple[str, ...]:
        """The devices that are asked for."""
        return tuple(self._members)

    @property
    def alive(self) -> frozenset[str]:
        """The devices that plans may count on now."""
        now, times = time.monotonic(), self.times
        with self._lock:
            return frozenset(
                name for name, m in self._members.items()
                if m and now - m.heard < times.gone and m.heard - m.since >= times.probation)

    def handle(self, peer: str, frame: Frame) -> None:
        """Take one frame; what is malformed is counted and dropped."""
        try:
            if isinstance(frame, Chunk):
                raise MalformedFrameError('a coordinator takes no chunks', 'kind')
            with self._lock:
                self._control(peer, frame)
        except MalformedFrameError as error:
            if self.rejections.count(error.cause, time.monotonic()):
                self.log(f'rejected ({error.cause}): {quoted(error)}')

    def close(self) -> None:
        """Stop; the plan goes on without a coordinator, and the channel is the caller's."""
        self._stop.set()
        self._thread.join()

    def _control(self, peer: str, frame: Control) -> None:
        if peer not in self._members:
            raise MalformedFrameError(f'a device {quoted(peer)} is not expected', 'peer')
        change, id_ = self._change, PlanId(frame.session, frame.epoch)
        if frame.kind is ControlKind.PONG:
            self._pong(peer, plan_ids(frame.body.get('held')),
                       plan_id(frame.body.get('committed')))
        elif frame.kind is ControlKind.READY:
            if change and change.id == id_:
                change.ready.add(peer)
        elif frame.kind is ControlKind.REFUSE:
            self.log(f'{peer} refuses plan {id_.epoch}: {quoted(frame.body.get("reason"))}')
            if change and change.id == id_:
                self._abort('it was refused')
        else:
            raise MalformedFrameError(f'{frame.kind.name} for a coordinator', 'kind')

    def _pong(self, peer: str, held: frozenset[PlanId], committed: PlanId) -> None:
        self._hear(peer, held)
        self._seen = max(self._seen, committed)
        if committed < self.id and self.id in held:  # it has missed it
            self.channel.send(peer, Control(ControlKind.COMMIT, *self.id))

    def _hear(self, peer: str, held: frozenset[PlanId]) -> None:
        now, member = time.monotonic(), self._members[peer]
        if member is None or now - member.heard > self.times.gone:
            self._members[peer] = _Member(now, now, held)
        else:
            member.heard, member.held = now, held

    def _run(self) -> None:
        while not self._stop.wait(self.times.heartbeat):
            with self._lock:
                self._step(time.monotonic())
            for name in tuple(self._members):
                self.channel.send(name, Control(ControlKind.PING, *self.id))

    def _step(self, now: float) -> None:
        alive = self.alive
        if self._change:
            self._follow(self._change, alive, now)
        elif self.plan and self.id < self._seen:
            self.log(f'plan {self._seen} of another coordinator is in use: this one steps down')
            self.plan, self.id, self._term = None, NO_PLAN, 0
        elif alive and now >= self._rest and not self._gathering(now):
            wanted = self._plan_for(alive)
            if wanted and (wanted != self.plan or self._lost(alive)):
                self._begin(wanted, now)

    def _gathering(self, now: float) -> bool:
        """Tell whether the first plan should still wait for devices."""
        return self.plan is None and now - self._began < self.times.gathering \
            and len(self.alive) < len(self._members)

    def _plan_for(self, alive: frozenset[str]) -> StagePlan | None:
        if self._planned[0] != alive:
            self._planned = alive, self.make_plan(alive)
        return self._planned[1]

    def _lost(self, alive: frozenset[str]) -> bool:
        """Tell whether a device does not hold the plan any more."""
        if self.plan is None:
            return True
        needed = alive.intersection((self.plan.source, *self.plan.devices))
        return any(self.id not in member.held for name, member in self._members.items()
                   if name in needed and member)

    def _begin(self, plan: StagePlan, now: float) -> None:
        if not self._term:
            # Two coordinators that begin at once get different terms.
            self._term = (self._seen.term // _TERM_STEP + 1) * _TERM_STEP \
                + secrets.randbelow(_TERM_STEP)
        id_ = PlanId(self._term, max(self.id, self._seen).epoch + 1)
        self._change = _Change(id_, plan, now)
        self._tell(self._change, ControlKind.PREPARE, {'plan': plan.to_json()})

    def _follow(self, change: _Change, alive: frozenset[str], now: float) -> None:
        needed = _devices(change.plan)
        if change.ready >= needed:
            self._change, self.plan, self.id = None, change.plan, change.id
            for name in needed:
                member = self._members[name]
                if member:
                    member.held |= {change.id}
            self._tell(change, ControlKind.COMMIT, {})
            self._changed()
        elif lost := needed - alive:
            self._abort(f'{", ".join(sorted(lost))} left')
        elif now - change.since > self.times.preparing:
            self._abort(f'{", ".join(sorted(needed - change.ready))} did not get ready')

    def _abort(self, reason: str) -> None:
        if self._change:
            self.log(f'plan {self._change.id.epoch} is given up: {reason}')
            self._tell(self._change, ControlKind.ABORT, {})
            self._change, self._rest = None, time.monotonic() + self.times.rest

    def _tell(self, change: _Change, kind: ControlKind, body: Mapping[str, object]) -> None:
        for name in _devices(change.plan):
            self.channel.send(name, Control(kind, *change.id, 0, body))


def _devices(plan: StagePlan) -> frozenset[str]:
    return frozenset((plan.source, *plan.devices))
