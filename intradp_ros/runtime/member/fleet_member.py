# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""
A device's part in a fleet, for any system: heartbeats, orders, terms and blobs.

Which plan is prepared, used and let go is decided by `cluster/plan_holder.py`;
here its orders and answers are carried, and handed to the role of the plan's
format.  What roles may rely on is said in `role.py`.
"""
from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
import math
import threading
import time
from typing import TYPE_CHECKING

from intradp_ros.cluster import plan_holder
from intradp_ros.cluster.fleet_messages import (
    Abort,
    Claim,
    Commit,
    Goodbye,
    LinkMeasurement,
    Prepare,
)
from intradp_ros.cluster.plan_holder import Load, PlanHolder
from intradp_ros.cluster.plan_id import NO_PLAN, PlanError, PlanId
from intradp_ros.cluster.terms import TermLimit
from intradp_ros.core.steady import Steady
from intradp_ros.runtime.member.fleet_control import (
    FleetMessage,
    from_control,
    plan_id,
    to_control,
)
from intradp_ros.runtime.member.heartbeats import Condition, Vitals
from intradp_ros.runtime.member.role import Lacking, Plan, Role, RoleMaker
from intradp_ros.runtime.requests.worker_thread import Worker
from intradp_ros.runtime.transport.peer_channel import PeerChannel
from intradp_ros.runtime.weights.exchange import WeightExchange, WeightPolicy
from intradp_ros.runtime.weights.fetcher import Wanted
from intradp_ros.runtime.weights.frames import is_of_weights
from intradp_ros.wire.frames import Chunk, Control, ControlKind, Frame, MalformedFrameError
from intradp_ros.wire.rejections import Rejections
from intradp_ros.wire.sanitise import quoted

if TYPE_CHECKING:
    from intradp_ros.runtime.models.model import SharedModel

Log = Callable[[str], None]
#: Plans that may wait to be loaded; a coordinator waits for the last before it sends one more.
MAX_OFFERS = 4
#: Seconds between heartbeats.
HEARTBEAT = 0.2
#: A rate that was measured longer ago than this (s) is no longer reported.
_NEW_RATE = 1.0
#: Times that a plan may lack something after all was fetched that it lacked before.
_MAX_FETCHES = 16


@dataclass(frozen=True, slots=True)
class _Known:
    """A plan that was parsed, and the role that it is of."""

    role: Role
    plan: Plan


@dataclass(slots=True)
class _Fetching:
    """What is fetched for a plan, and how often something was."""

    id: PlanId  # noqa: A003
    wanted: Wanted | None = None
    times: int = 0


class FleetMember:
    """
    One device on a channel, with a role for each format of plans that it understands.

    It listens to `coordinators` only, and reports to them every `heartbeat` (s) that it
    is there.  Plans are loaded on a thread of their own, while
    work goes on.  `changed` is called when another plan is in use.
    Blobs that a plan needs and that are not here are fetched from its other
    participants, as far as the policy `weights` lets it; those of `models` are handed out.
    """

    def __init__(self, channel: PeerChannel, makers: Iterable[RoleMaker], log: Log,
                 changed: Callable[[], None] = lambda: None, *,
                 models: Mapping[str, SharedModel] | None = None,
                 coordinators: Iterable[str] = ('coordinator',), heartbeat: float = HEARTBEAT,
                 condition: Callable[[], Condition] = Condition,
                 weights: WeightPolicy = WeightPolicy()) -> None:
        self._channel, self._log, self._changed = channel, log, changed
        self.coordinators = frozenset(coordinators)
        self.rejections = Rejections()
        self.weights = WeightExchange(channel, models or {}, weights, log)
        self._holder = PlanHolder(channel.name)
        self._known: dict[PlanId, _Known] = {}
        self._fetching = _Fetching(NO_PLAN)
        self._oldest = NO_PLAN  # nothing of plans before it is in flight, as a role says
        self._vitals = Vitals(condition)
        self._terms = TermLimit(time.monotonic())
        self._trouble = ''
        self._lock = threading.RLock()  # orders of several coordinators come on several threads
        self.roles: Mapping[str, Role] = {role.format: role for role in (
            make(self) for make in makers)}
        self.weights.states = {role.format: role.state for role in self.roles.values()}
        self._plans: Worker[Load] = Worker(self._load, self._plan_failed, MAX_OFFERS,
                                           f'plans-{channel.name}')
        self._stop = threading.Event()
        self._heart = Steady('a heartbeat', log)
        self._beating = threading.Thread(target=self._beat_on, args=(heartbeat,),
                                         name=f'heartbeat-{channel.name}', daemon=True)
        channel.open(self.coordinators, stay=True)
        channel.listen(self.handle)
        self._beating.start()

    # What roles are offered (`Host` in role.py).

    @property
    def name(self) -> str:
        """The device's name in the fleet."""
        return self._channel.name

    @property
    def channel(self) -> PeerChannel:
        """The ways to the others."""
        return self._channel

    @property
    def blobs(self) -> WeightExchange:
        """The blobs that are here."""
        return self.weights

    def log(self, text: str) -> None:
        """Log a line for people."""
        self._log(text)

    def reject(self, cause: str, text: str) -> None:
        """Count what is rejected; log each cause at most once per second."""
        if self.rejections.count(cause, time.monotonic()):
            self._log(f'rejected ({cause}): {quoted(text)}')

    def held(self) -> tuple[PlanId, ...]:
        """Return the plans that are held, the newest last."""
        return tuple(sorted(self._holder.held))

    def release(self, oldest: PlanId) -> None:
        """Say that nothing of plans before this one is in flight: they go at the next beat."""
        self._oldest = oldest

    def changed(self) -> None:
        """Say that what this device publishes of itself has changed."""
        self._changed()

    # What it does.

    @property
    def committed(self) -> PlanId:
        """The plan in use."""
        return self._holder.committed

    @property
    def plan(self) -> Plan | None:
        """What the plan in use says."""
        known = self._known.get(self.committed)
        return known.plan if known else None

    def trouble(self) -> tuple[str, ...]:
        """Return what keeps this device from plans: one text for each cause."""
        own = (f'{self.name} refuses: {self._trouble}',) if self._trouble else ()
        return own + tuple(text for _, text in sorted(self._channel.conflicts().items()))

    def handle(self, peer: str, frame: Frame) -> None:
        """Sort one frame; what is malformed is counted and dropped."""
        if self._stop.is_set():
            return
        try:
            for role in self.roles.values():
                role.heard(peer)
            if is_of_weights(frame):
                self.weights.handle(peer, frame)
            elif isinstance(frame, Control) and peer in self.coordinators and \
                    frame.kind is not ControlKind.LINES:
                self._ordered(peer, from_control(peer, frame))
            else:
                self._of_plan(peer, frame)
        except MalformedFrameError as error:
            self.reject(error.cause, str(error))

    def close(self) -> None:
        """Stop all work, with a word to the coordinators; the channel is the caller's."""
        self._stop.set()
        self._beating.join()
        self._plans.stop()
        with self._lock:
            for role in self.roles.values():  # what is in loading is not wanted any more
                role.keep(self.held())
        self._plans.close()
        self.weights.close()
        for role in self.roles.values():
            role.close()
        self._say(Goodbye(self.name))

    def _of_plan(self, peer: str, frame: Frame) -> None:
        """Answer a PING, held or not; all else is for the role of the plan that it names."""
        id_ = PlanId(frame.session, frame.epoch)
        known = self._known.get(id_)
        asked = not isinstance(frame, Chunk) and frame.kind is ControlKind.PING
        if asked:
            plan_id([*id_])
            self._channel.send(peer, Control(ControlKind.PONG, frame.session, frame.epoch, 0, {
                'held': [list(held) for held in self.held()]}))
        if known and id_ in self._holder.held:
            known.role.handle(peer, frame)
        elif not asked:
            raise MalformedFrameError(f'plan {id_}, held are {self.held()}', 'epoch')

    def _ordered(self, peer: str, message: FleetMessage) -> None:
        """Take what a coordinator says."""
        with self._lock:
            self._terms.check(message, self._holder.term, time.monotonic())
        if isinstance(message, Claim):
            with self._lock:
                self._holder = plan_holder.heard_term(self._holder, message.term)
        elif isinstance(message, Prepare | Commit | Abort):
            with self._lock:
                self._answer(peer, plan_holder.on_order(self._holder, message))

    def _answer(self, peer: str, result: plan_holder.Result) -> None:
        """Take a step of the plans that are held, and say or load what follows from it."""
        before, (self._holder, reply) = self._holder, result
        self._keep()
        if isinstance(reply, Load):
            self._plans.put(reply)
        elif reply:
            self._channel.send(peer, to_control(reply))
        if before.committed != self._holder.committed:
            self._use(before.committed)

    def _keep(self) -> None:
        """Let go of plans that are neither held nor loaded."""
        ids = frozenset((*self._holder.held, *self._holder.loading))
        for role in self.roles.values():
            role.keep(ids)
        for id_ in self._known.keys() - ids:
            self._known.pop(id_, None)

    def _use(self, before: PlanId) -> None:
        id_ = self._holder.committed
        known, last = self._known[id_], self._known.get(before)
        known.role.use(id_, self._holder.boundary)
        if last and last.role is not known.role:
            # Its role hears of no other plan.
            self._holder = plan_holder.release_previous(self._holder)
            self._keep()
        self._changed()

    def _load(self, load: Load) -> None:
        """Load a plan, once what it lacks is here, and send the coordinators what came of it."""
        if load.id not in self._holder.loading:
            return  # it was given up while something was fetched
        try:
            known = self._known.get(load.id) or self._parsed(load)
            self._channel.open(known.plan.participants)
            if lacking := known.role.lacking(known.plan):
                self._fetch(load, known, lacking)
                return
            known.role.load(load.id, known.plan)
        except Exception as error:  # noqa: B902 - the plan's fault, or out of memory: say so
            self.reject('plan', f'{type(error).__name__}: {error}')
            self._give_up(load, quoted(str(error) or type(error).__name__))
            return
        with self._lock:
            self._holder, reply = plan_holder.loaded(self._holder, load.id)
            if reply is None:
                self._keep()
            else:
                self._known[load.id] = known  # it may have been aborted, and ordered again
                self._trouble = ''
        if reply and not isinstance(reply, Load):
            self._say(reply)

    def _parsed(self, load: Load) -> _Known:
        """Return a plan with its role, from now on known by its id."""
        format_ = load.plan.get('format') if isinstance(load.plan, Mapping) else None
        role = self.roles.get(format_) if isinstance(format_, str) else None
        if role is None:
            have = ', '.join(self.roles)
            raise PlanError(f'{self.name} does not understand plans of the format '
                            f'{quoted(format_)}, it understands {have}: give it such a role '
                            '(parameter roles)')
        known = _Known(role, role.parse(load.plan))
        with self._lock:
            if load.id in self._holder.loading:
                self._known[load.id] = known
        return known

    def _fetch(self, load: Load, known: _Known, lacking: Lacking) -> None:
        """Fetch what a plan lacks; what was fetched for another plan is fetched no more."""
        if lacking.blobs and (refusal := self.weights.refusal(lacking.model)):
            raise PlanError(refusal)
        last = self._fetching
        if last.id != load.id:
            self._fetching = _Fetching(load.id)
        self._fetching.times += 1
        if self._fetching.times > _MAX_FETCHES:
            raise PlanError(f'{len(lacking.blobs)} blobs and {len(lacking.state)} tensors of '
                            'state are lacking still after '
                            f'{_MAX_FETCHES} fetches: is the store too small (store_mb)?')
        peers = frozenset(known.plan.participants) | lacking.peers
        self._channel.open(lacking.peers)
        done = partial(self._fetched, load)
        if lacking.blobs:
            self._fetching.wanted = self.weights.fetch(lacking.blobs, peers, done, lacking.needed)
        else:
            self.weights.fetch_state(known.role.format, lacking.state, peers, known.role.state,
                                     done)
        if last.wanted and last.id != load.id:
            self.weights.drop(last.wanted)

    def _fetched(self, load: Load, reason: str) -> None:
        """Go on with a plan for which something was fetched, or is not to be had."""
        if reason:
            self._give_up(load, reason)
        else:
            self._plans.put(load)

    def _give_up(self, load: Load, reason: str) -> None:
        with self._lock:
            self._trouble = reason
            self._holder, reply = plan_holder.failed(self._holder, load.id, reason)
            self._keep()
        if reply and not isinstance(reply, Load):
            self._say(reply)

    def _drain(self) -> None:
        """Let go of the last plan when nothing of it is in flight any more."""
        with self._lock:
            held = self._holder
            if held.previous in held.held and held.previous < self._oldest:
                self._holder = plan_holder.release_previous(held)
                self._keep()

    def _beat_on(self, heartbeat: float) -> None:
        while not self._stop.is_set():
            self._heart.do(lambda: self._say(self._vitals.heartbeat(
                self.name, self._holder, tuple(self.roles.values()), self._links, self._heart)),
                None)
            self._heart.do(self._drain, None)
            self._stop.wait(heartbeat)

    def _links(self) -> dict[str, LinkMeasurement]:
        """Return what was measured lately of the ways to the devices of the plan in use."""
        plan, found = self.plan, {}
        for name in plan.participants if plan else ():
            if name != self.name:
                report = self._channel.report(name)
                if report.age < _NEW_RATE and 0 < report.send_rate < math.inf:
                    found[name] = LinkMeasurement(report.send_rate, report.round_trip / 2)
        return found

    def _say(self, message: FleetMessage) -> None:
        for name in self.coordinators:
            self._heart.do(partial(self._channel.send, name, to_control(message)), None)

    def _plan_failed(self, error: Exception) -> None:
        self._log(f'{type(error).__name__}: {error}')
