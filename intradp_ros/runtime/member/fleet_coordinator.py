# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""
Carries what a fleet's coordinator decides: frames and time in, frames and plans out.

Who is there, who coordinates and how a plan replaces another is decided by
`cluster/coordinator.py`; nothing of it is decided here.
"""
from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import partial
import threading
import time
from typing import Any

from intradp_ros.cluster.coordinator import (
    Action,
    Coordinator,
    CoordinatorTimes,
    Event,
    Propose,
    Refusal,
    step,
    Tick,
    WantPlan,
)
from intradp_ros.cluster.election import Election
from intradp_ros.cluster.fleet_messages import Heartbeat
from intradp_ros.cluster.membership import Liveness, Membership
from intradp_ros.cluster.plan_id import NO_PLAN, PlanId
from intradp_ros.cluster.terms import TermLimit
from intradp_ros.core.steady import Steady
from intradp_ros.runtime.member.fleet_control import FleetMessage, from_control, to_control
from intradp_ros.runtime.member.heartbeats import Beats
from intradp_ros.runtime.member.planner import Planner
from intradp_ros.runtime.member.role import Plan
from intradp_ros.runtime.requests.worker_thread import Worker
from intradp_ros.runtime.transport.peer_channel import PeerChannel
from intradp_ros.wire.frames import Chunk, ControlKind, Frame, MalformedFrameError
from intradp_ros.wire.rejections import Rejections
from intradp_ros.wire.sanitise import quoted

Log = Callable[[str], None]
#: Seconds between two looks whether another plan should be in use.
LOOK = 1.0
#: Seconds from its start before which it is not said that there is no plan for those that came.
PATIENCE = 30.0
#: Devices that are taken into the list of a fleet; more come only of strangers.
MAX_DEVICES = 64


class FleetCoordinator:
    """
    A candidate on a channel of its own; `planner` plans for the devices that are there.

    :param times, gathering: those of the state machine; the first plan waits so long (s) for those
        that are expected and were not heard yet, not for those that are gone again.
    :param candidates, priority: declared priorities of others that may coordinate; the own one.
    :param changed: called when another plan is in use, others are there, or another coordinates.
    """

    def __init__(self, channel: PeerChannel, planner: Planner, log: Log, *,
                 times: CoordinatorTimes = CoordinatorTimes(), gathering: float = 3.0,
                 candidates: Mapping[str, int] | None = None, priority: int = 0,
                 changed: Callable[[], None] = lambda: None) -> None:
        self.channel, self.planner, self.log, self.times = channel, planner, log, times
        self.rejections, self._said = Rejections(), Rejections()
        self._changed = changed
        self._beats = Beats()
        self._state = Coordinator(Election(channel.name, priority, self._beats.incarnation),
                                  candidates or {})
        self._devices: dict[str, bool] = {}  # whether they were named, or only heard
        self._problem: tuple[str, Any] = '', ''  # and what it was said of
        self._began = self._looked = time.monotonic()
        self._terms = TermLimit(self._began)
        self._lock = threading.RLock()
        self._stop = threading.Event()
        self._steady = Steady('a coordinator', log)
        self._planner: Worker[WantPlan] = Worker(
            partial(self._plan, gathering), self._failed, 1, 'planner')
        self._adapter: Worker[Tick] = Worker(self._look, self._failed, 1, 'adapter')
        channel.open(self._state.candidates, stay=True)
        channel.listen(self.handle)
        self._thread = threading.Thread(target=self._run, name='coordinator', daemon=True)
        self._thread.start()

    def expect(self, names: Iterable[str]) -> None:
        """Hear devices of these names from now on; they are missed until they come."""
        names = [name for name in names if not self._devices.get(name)]
        self.channel.open(names, stay=True)
        with self._lock:
            self._devices.update(dict.fromkeys(names, True))

    def invite(self, name: str) -> None:
        """
        Hear a device that somebody says is there; whether it is, it has to show.

        :raises ValueError: if there are as many devices as may be, and all of them are heard.
        """
        if name in self._devices or name == self.channel.name:
            return
        with self._lock:
            if len(self._devices) >= MAX_DEVICES:
                unheard = [n for n, named in self._devices.items() if not named
                           and n not in self._state.membership.alive]
                if not unheard:
                    raise ValueError(f'device {name} is one too many, {MAX_DEVICES} are known')
                del self._devices[unheard[0]]
            self._devices[name] = False
        try:
            self.channel.open((name,))
        except ValueError:  # there are too many channels now
            raise
        except Exception:  # there never is one of this name
            self._devices.pop(name, None)
            raise

    @property
    def expected(self) -> tuple[str, ...]:
        """The devices that were named, and others that were heard."""
        return tuple(name for name, named in self._devices.items()
                     if named or name in self._state.membership.members)

    @property
    def refused(self) -> int:
        """How often in a row a device refused to prepare a plan, at most."""
        return max((r.times for r in self._state.refusals.values()), default=0)

    @property
    def refusals(self) -> Mapping[str, str]:
        """Return why devices refused the last plan that they were asked to prepare."""
        return {name: refusal.reason for name, refusal in self._state.refusals.items()}

    def trouble(self) -> tuple[str, ...]:
        """Return why devices are left out, or there is no plan: one text for each cause."""
        refused = tuple(f'{name} refuses: {why}' for name, why in sorted(self.refusals.items()))
        conflicts = tuple(text for _, text in sorted(self.channel.conflicts().items()))
        return refused + conflicts + tuple(filter(None, self._problem[:1]))

    @property
    def leads(self) -> bool:
        """Whether this candidate coordinates the fleet."""
        return self._state.leads

    @property
    def holder(self) -> str:
        """Who coordinates the fleet, as far as is known; '' for nobody."""
        return self._state.election.holder

    @property
    def members(self) -> Membership:
        """What was heard of all."""
        return self._state.membership

    @property
    def alive(self) -> frozenset[str]:
        """The devices that plans may count on now."""
        return self._state.membership.alive.intersection(self._devices)

    @property
    def plan(self) -> Plan | None:
        """The plan in use, None without one, or where another coordinates."""
        in_use = self._state.switch.in_use
        return in_use.plan if in_use else None

    @property
    def id(self) -> PlanId:  # noqa: A003
        """The number of the plan in use."""
        in_use = self._state.switch.in_use
        return in_use.id if in_use else NO_PLAN

    def handle(self, peer: str, frame: Frame) -> None:
        """Take one frame; what is malformed is counted and dropped."""
        try:
            if isinstance(frame, Chunk):
                raise MalformedFrameError('a coordinator takes no chunks', 'kind')
            if peer not in self._devices and peer not in self._state.candidates:
                raise MalformedFrameError(f'a device {quoted(peer)} is not expected', 'peer')
            if frame.kind is ControlKind.LINES:
                self.planner.handle(peer, frame)
                return
            message = from_control(peer, frame)
            if not isinstance(message, Event):
                raise MalformedFrameError(f'{frame.kind.name} for a coordinator', 'kind')
            with self._lock:
                self._terms.check(message, self._state.election.term, time.monotonic(),
                                  peer in self._state.candidates)
            known = self._state.membership.members.keys()
            if isinstance(message, Heartbeat):  # first: it may be what a plan is wanted for
                self.planner.heard(message, time.monotonic())
            self._happen(message)
            for name in (known | {peer}) - self._state.membership.members.keys():
                self.planner.forget(name)
        except MalformedFrameError as error:
            if self.rejections.count(error.cause, time.monotonic()):
                self.log(f'rejected ({error.cause}): {quoted(error)}')

    def close(self) -> None:
        """Stop; the plan goes on without a coordinator, and the channel is the caller's."""
        self._stop.set()
        self._thread.join()
        self._planner.close()
        self._adapter.close()

    def propose(self, plan: Plan, boundary: int = 0) -> None:
        """Change to a plan, if this candidate coordinates and all its devices are alive."""
        self._happen(Propose(plan, frozenset(plan.participants), boundary))

    def _run(self) -> None:
        while not self._stop.wait(self.times.members.heartbeat / 4):
            self._steady.do(lambda: self._happen(Tick(self.channel.aside)), None)
            if (now := time.monotonic()) - self._looked >= LOOK and self.leads:
                self._looked = now
                self._adapter.put(Tick())
            if now - self._beats.last >= self.times.members.heartbeat:
                beat = Heartbeat(self.channel.name, self._beats.incarnation,
                                 self._beats.beat(now), term=self._state.election.term)
                for name in self._state.candidates:
                    self._send(name, beat)

    def _happen(self, event: Event) -> None:
        """Take a step, and do what it says."""
        with self._lock:
            before = self._state
            self._state, actions = step(before, event, time.monotonic(), self.times)
            for action in actions:
                self._steady.do(partial(self._act, action), None)
            changed = _seen(before) != _seen(self._state)
            if changed:
                self._report(before)
            self._report_refusals(before.refusals)
        if changed:
            self._steady.do(self._changed, None)

    def _act(self, action: Action) -> None:
        if isinstance(action, WantPlan):
            self._planner.put(action)
            return
        targets = (action.target,) if action.target else (*self._devices, *self._state.candidates)
        for name in targets:
            self._send(name, action.message)

    def _send(self, name: str, message: FleetMessage) -> None:
        try:
            self.channel.send(name, to_control(message))
        except Exception as error:  # noqa: BLE001 - no channel is left, say: the others go on
            if self.rejections.count('channel', time.monotonic()):
                self.log(f'nothing can be said to {quoted(name)}: {quoted(error)}')

    def _report(self, before: Coordinator) -> None:
        after = self._state
        if before.leads != after.leads and self._said.count(
                f'leads {after.leads}', time.monotonic()):
            self.log(f'coordinates in term {after.election.term:#x}' if after.leads else
                     f'{after.election.holder or "nobody"} coordinates in term '
                     f'{after.election.term:#x}: this one steps down')
        given_up = before.switch.next
        if given_up and after.switch.next is None and self.id != given_up.id \
                and self.rejections.count('given up', time.monotonic()):
            self.log(f'plan {given_up.id.epoch} is given up; '
                     f'{", ".join(sorted(given_up.missing))} did not get ready')

    def _report_refusals(self, before: Mapping[str, Refusal]) -> None:
        """Log once why a device is left out, and when it is taken in again."""
        for name, refusal in self._state.refusals.items():
            if (name not in before or before[name].reason != refusal.reason) \
                    and self._said.count(f'{name} refuses', time.monotonic()):
                self.log(f'{name} refuses: {refusal.reason}; plans leave it out, and it is asked '
                         'again after growing times')
        for name in before.keys() - self._state.refusals.keys():
            if self._said.count(f'{name} refuses no more', time.monotonic()):
                self.log(f'{name} refuses no more')

    def _plan(self, gathering: float, wanted: WantPlan) -> None:
        """Make a plan, on a thread of its own: it may take seconds."""
        alive = wanted.alive.intersection(self._devices)
        named = {name for name, one in self._devices.items() if one}
        there = wanted.alive | self._state.refusals.keys() \
            | self._state.membership.of(Liveness.GONE)
        missing, waited = named - there, time.monotonic() - self._began
        if self.plan is None and missing and waited < gathering:
            return
        found = self.planner.plan(alive, time.monotonic())
        awaited = sorted(missing | {*self.planner.devices} - there)
        if found or self.planner.rests:
            self._say_problem('')
        elif not awaited or waited >= PATIENCE:
            why = self.planner.why or f'there is none for {", ".join(sorted(alive))}'
            reasons = [why, *(f'{name} did not come' for name in awaited)]
            self._say_problem('no plan: ' + ('; '.join(reasons) if alive else
                                             'no device is there'), alive)
        if found:
            self.propose(found.plan, found.boundary)

    def _look(self, tick: Tick) -> None:
        """Change to another plan where one should be in use (on a thread of its own)."""
        found = self.planner.look(time.monotonic())
        if found and self.plan and found.plan != self.plan:
            self.propose(found.plan, found.boundary)

    def _failed(self, error: Exception) -> None:
        self._say_problem(f'no plan: {type(error).__name__}: {quoted(error)}')

    def _say_problem(self, problem: str, of: Any = None) -> None:
        """Keep why there is no plan, and log it once, `of` the same devices: figures change."""
        before, self._problem = self._problem, (problem, problem and (of or problem))
        if problem and self._problem[1] != before[1]:
            self.log(problem)
        if problem != before[0]:
            self._changed()


def _seen(state: Coordinator) -> object:
    """Return what others are sent of a state."""
    plans = state.switch.in_use and state.switch.in_use.id, state.switch.next is None
    refusals = {name: refusal.reason for name, refusal in state.refusals.items()}
    return state.leads, plans, state.membership.alive, refusals
