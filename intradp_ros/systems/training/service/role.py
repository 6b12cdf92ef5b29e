# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""
A device's part in training, for the member of its fleet: a worker process, and lines with it.

The worker (`worker.py`) takes the trainer's orders and sends it reports.  Here they are checked
and carried between the frames of a session and the pipes of the worker, which outlives sessions
as long as they are of the same training: what it holds is where the next one begins.  The tag of
the newest state that is here goes out with heartbeats, so that another coordinator can go on.
"""
from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
import contextlib
from dataclasses import dataclass, field
from functools import partial
import json
import math
import queue
import socket
import threading
import time
from typing import Any, Protocol

import torch

from intradp_ros.cluster.plan_id import NO_PLAN, PlanError, PlanId
from intradp_ros.core.shared_key import SharedKey
from intradp_ros.core.steady import Steady
from intradp_ros.runtime.member.line_way import LineWay, stream_of
from intradp_ros.runtime.member.role import Host, Lacking, Plan, Role
from intradp_ros.runtime.weights.state import State
from intradp_ros.split.kernel_device import HOST
from intradp_ros.systems.training.layers.task_facts import apart
from intradp_ros.systems.training.run.round_groups import check_distributed, GroupError
from intradp_ros.systems.training.run.site_address import site_address
from intradp_ros.systems.training.run.weight_exchange import stream_key
from intradp_ros.systems.training.run.worker_process import ProcessLink
from intradp_ros.systems.training.run.worker_settings import Settings
from intradp_ros.systems.training.service.messages import read_order
from intradp_ros.systems.training.service.session_plan import (
    FORMAT,
    parse_session,
    TrainingSession,
)
from intradp_ros.systems.training.service.trainer import Link
from intradp_ros.wire.frames import Control, Frame, MalformedFrameError

#: Seconds for which a session waits for a worker, so that what it fails by at once is the reason
#: of a refusal; a slow one joins later and holds up nobody.  Seconds of a trainer's answer.
LOADING, ANSWER = 2.0, 2.0
#: Seconds for which the worker rests when it has died: doubled each time, up to the last.
FIRST_REST, LONGEST_REST = 1.0, 60.0
#: Seconds after which the worker leaves its plan when nobody takes its reports, and ends.
ALONE, ORPHANED = 10.0, 600.0
_TICK = 0.02

Take = Callable[[str, Mapping[str, Any] | None], None]


class Start(Protocol):
    """Starts a worker; `take` gets its reports, None when it has ended."""

    def __call__(self, name: str, session: TrainingSession, address: str, take: Take) -> Link:
        """Start it."""


def process_starter(threads: int, device: str = HOST.name, key: SharedKey | None = None) -> Start:
    """Return what starts workers as processes that compute on a device with `threads` threads."""
    def start(name: str, session: TrainingSession, address: str, take: Take) -> Link:
        settings = Settings(session.timeout, session.every, address, device)
        return ProcessLink(name, session.task, (session.host, session.port), settings, take,
                           threads, facts=session.facts, key=stream_key(key, session.training))
    return start


@dataclass
class _Child:
    """The worker of a training: `number` counts those of this device."""

    session: TrainingSession
    number: int
    link: Link
    ready: bool = False
    attends: bool = False
    why: str = ''
    ended: bool = False


@dataclass
class _Rest:
    """How long a worker rests after it died: `deaths` in a row, the last at a time."""

    deaths: int = 0
    died: float = 0.0

    def over(self, now: float) -> bool:
        """Return whether it has rested."""
        return now - self.died >= min(LONGEST_REST, FIRST_REST * 2.0 ** min(self.deaths, 16))


@dataclass
class _Silence:
    """
    Since when nobody takes the worker's reports, and whether it `left` its plan for that.

    It leaves after `alone` seconds, and ends after `orphaned`.
    """

    alone: float
    orphaned: float
    since: float = field(default_factory=time.monotonic)
    left: bool = False

    def end(self) -> None:
        """Count from the start again."""
        self.since, self.left = time.monotonic(), False


class TrainingRole(Role):
    """
    Takes part in the training of `tasks`, by their names here; nothing else is ever loaded.

    `address` is where this device listens for others, '' for that of the interface by which the
    trainer is reached.  When nobody takes the reports of the worker for `alone` seconds
    it leaves its plan, after `orphaned` it ends, and what it holds is dropped; a coordinator that
    comes then goes on from its checkpoint, or from the start.
    """

    format = FORMAT  # noqa: A003

    def __init__(self, host: Host, tasks: Collection[str], start: Start, address: str = '',
                 alone: float = ALONE, orphaned: float = ORPHANED) -> None:
        self.state = State()
        self._host, self._tasks, self._start, self._given = host, tuple(tasks), start, address
        self._silence, self._rest = _Silence(alone, orphaned), _Rest()
        self._plans: dict[PlanId, TrainingSession] = {}
        self._used = NO_PLAN
        self._way: LineWay | None = None
        self._child: _Child | None = None
        self._count, self._seconds = 0, 0.0
        self._shown, self._again = '', math.inf
        self._over: set[int] = set()
        self._said: dict[str, str] = {}
        self._changed = threading.Condition(threading.RLock())
        self._events: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, name=f'training-{host.name}',
                                        daemon=True)
        self._thread.start()

    # What the member calls.

    def parse(self, data: Any) -> Plan:
        """Return the session that plain data describe; PlanError if they describe none."""
        return parse_session(data)

    def lacking(self, plan: Plan) -> Lacking:
        """Return nothing: what a worker lacks comes with its orders."""
        return Lacking()

    def load(self, id: PlanId, plan: Plan) -> None:  # noqa: A002
        """
        Have a worker that is ready for a session's training, or getting ready.

        :raises PlanError: if this device does not train the task, has another one by its name,
            cannot reach the trainer, or holds the training of another version of the task.
        """
        assert isinstance(plan, TrainingSession)
        name = self._host.name
        if name not in plan.seats:
            raise PlanError(f'{name} has no seat in this session')
        if plan.task not in self._tasks:
            raise PlanError(f'{name} does not train {plan.task!r:.200}: add it to the parameter '
                            f'tasks there, which has {", ".join(self._tasks) or "none"}')
        try:
            check_distributed()
        except GroupError as error:
            raise PlanError(str(error)) from error
        address = self._address(plan)
        end = time.monotonic() + LOADING
        with self._changed:
            child = self._child
            if child and child.ready and not child.ended and not child.why and \
                    child.session.training == plan.training and \
                    (difference := apart(child.session.facts, plan.facts)):
                raise PlanError(f'{name} goes on with this training only as it was begun: '
                                f'{difference}. Begin a new one with what has changed')
            self._plans[id] = plan
            if child is None or child.ended or \
                    not _same(child.session, plan) or child.why:
                self._begin(plan, address)
            child = self._child
            while child is self._child and child and not child.ready and not child.ended and \
                    time.monotonic() < end:
                self._changed.wait(0.1)
            if child and child.ended:
                raise PlanError(child.why or f'the worker of {name} ended before it was ready')

    def use(self, id: PlanId, boundary: int) -> None:  # noqa: A002
        """Take the orders of a session from now on."""
        self._host.release(id)
        self._events.put(lambda: self._attend(id))

    def keep(self, ids: Collection[PlanId]) -> None:
        """Let go of all sessions but these."""
        with self._changed:
            self._plans = {id_: plan for id_, plan in self._plans.items() if id_ in ids}

    def handle(self, peer: str, frame: Frame) -> None:
        """Take lines of the session's coordinator; those of a seat before are of the past."""
        stream = stream_of(frame)
        assert isinstance(frame, Control)
        plan = self._plans.get(PlanId(frame.session, frame.epoch))
        if plan is None or peer != plan.coordinator:
            raise MalformedFrameError(f'{peer} gives no orders in this session', 'peer')
        way = self._way
        if way is not None and (way.number, way.peer) == (stream, peer):
            self._silence.end()
            way.take(frame)

    def busy(self) -> float:
        """Return the seconds of rounds so far."""
        return self._seconds

    def close(self) -> None:
        """End the worker."""
        self._events.put(None)
        self._thread.join()
        with self._changed:
            self._end()

    @property
    def trouble(self) -> str:
        """What keeps the worker from its work, '' if nothing does."""
        child = self._child
        return child.why if child and child.ended else ''

    def status(self) -> Mapping[str, Any]:
        """Return what is trained here, for people."""
        session = self._plans.get(self._used)
        child = self._child
        return {'task': session.task if session and child else 'none',
                'worker': 'none' if child is None or child.ended else
                'ready' if child.ready else 'loading', 'newest_tag': self._tag()}

    # All below runs on the role's own thread, but for `_begin`.

    def _run(self) -> None:
        steady = Steady('training', self._host.log)
        while True:
            way = self._way
            try:
                event = self._events.get(timeout=_TICK if way and not way.idle else 0.25)
            except queue.Empty:
                event = _nothing
            if event is None:
                return
            for work in (event, self._tick):
                steady.do(partial(self._checked, work), None)

    def _checked(self, work: Callable[[], None]) -> None:
        try:
            work()
        except MalformedFrameError as error:
            self._host.reject(error.cause, str(error))

    def _say(self, what: str, text: str) -> None:
        """Log a text, unless it was the last of its kind: some things happen again and again."""
        if self._said.get(what) != text:
            self._said[what] = text
            self._host.log(text)

    def _begin(self, session: TrainingSession, address: str) -> None:
        """Start a worker; the one before ends."""
        self._end()
        self._count += 1
        number = self._count

        def take(name: str, report: Mapping[str, Any] | None) -> None:
            self._events.put(lambda: self._report(number, report))
        self._say('worker', f'training of {session.task}: a worker starts')
        self._child = _Child(session, number, self._start(self._host.name, session, address, take))

    def _end(self) -> None:
        child, self._child = self._child, None
        if child is not None and not child.ended:
            child.link.send({'order': 'end'})
            threading.Thread(target=_reap, args=(child.link,), daemon=True).start()
        self._changed.notify_all()

    def _attend(self, id_: PlanId) -> None:
        """Begin to take the orders of a session; the worker reports what it holds."""
        with self._changed:
            session = self._plans.get(id_)
            if session is None:
                return
            self._used = id_
            seat = session.seats[self._host.name]
            if self._way is None or self._way.number != seat:
                self._way = LineWay(self._host.channel, session.coordinator, seat,
                                    lambda: self._used, self._take_lines)
                self._silence.end()
                if self._child is not None:
                    self._child.attends = False
                self._greet()
            self._show(self._tag())

    def _greet(self) -> None:
        """Have the worker attend the trainer of the session in use, when it can."""
        child, session, way = self._child, self._plans.get(self._used), self._way
        self._again = math.inf
        if child and child.ready and not child.ended and session and way \
                and _same(child.session, session):
            try:
                address = self._address(session)
            except PlanError as error:
                self._again = time.monotonic() + ANSWER
                self._say('trainer', str(error))
                return
            child.link.send({'order': 'attend', 'host': session.host, 'port': session.port,
                             'address': address, 'seat': way.number, 'timeout': session.timeout,
                             'every': session.every})

    def _take_lines(self, lines: list[str]) -> None:
        for line in lines:
            self._events.put(partial(self._order, line))

    def _order(self, line: str) -> None:
        """Hand an order to the worker that it is for."""
        order, child = read_order(line), self._child
        if order['order'] == 'end':
            session = self._plans.get(self._used)
            with self._changed:
                self._over.add(session.training if session else 0)
                self._end()
            self._show(None)
        elif child and order['child'] == child.number and child.attends:
            child.link.send(order)

    def _report(self, number: int, report: Mapping[str, Any] | None) -> None:
        """Take what a worker says."""
        with self._changed:  # so that one that begins is known
            child, way = self._child, self._way
        if child is None or number != child.number:
            return
        if report is None:
            with self._changed:
                child.ended = True
                self._rest.died = time.monotonic()
                self._changed.notify_all()
            self._say('end', 'the worker of a training ended'
                      + (f': {child.why}; it is tried again and again' if child.why else ''))
            if child.attends and way:
                with contextlib.suppress(OverflowError):
                    way.put(json.dumps({'report': 'ended', 'child': number}))
            return
        kind = report['report']
        if kind == 'fault':
            child.why = str(report['error'])
            if way and not child.attends:  # why it does not come
                with contextlib.suppress(OverflowError):
                    way.put(json.dumps({**report, 'child': number}))
        elif kind == 'joined' and 'seat' not in report:
            with self._changed:
                child.ready = True
                self._changed.notify_all()
            self._greet()
            return
        elif kind == 'joined':
            child.attends = way is not None and report['seat'] == way.number
            self._silence.since = time.monotonic()  # nothing was said before
        elif kind == 'round':
            self._rest.deaths = 0
            self._said.clear()
            self._seconds += report['seconds']
        elif kind == 'replicated':
            self._show(report['tag'])
        if kind in ('idle', 'joined'):
            self._show(max(map(int, report['held']), default=0))
        if child.attends and way:
            with contextlib.suppress(OverflowError):  # then nobody takes them for very long
                way.put(json.dumps({**report, 'child': number}))

    def _tick(self) -> None:
        """Send again, and look after the worker: it is restarted, or has nobody left."""
        way, child, now = self._way, self._child, time.monotonic()
        if way is not None:
            way.tick()
        if child is None:
            return
        if now >= self._again:
            self._greet()
        session = self._plans.get(self._used)
        if child.ended:
            if session and session.training == child.session.training and \
                    session.training not in self._over and self._rest.over(now):
                self._rest = _Rest(self._rest.deaths + 1, now)
                address = self._address(session)
                with self._changed:
                    self._begin(session, address)
            return
        silence = self._silence
        silent = now - silence.since
        if silent > silence.alone and child.attends and not silence.left:
            silence.left = True
            self._say('alone', 'nobody takes the reports of the worker: it waits')
            child.link.send({'order': 'stop'})
        if silent > silence.orphaned and child.ready and not self._asked_of(child):
            with self._changed:
                self._end()
            self._show(None)

    def _asked_of(self, child: _Child) -> bool:
        """Whether a session of the worker's training is being prepared."""
        return any(id_ > self._used and _same(plan, child.session)
                   for id_, plan in self._plans.items())

    def _address(self, session: TrainingSession) -> str:
        """Return where this device listens; PlanError if the trainer cannot be reached."""
        try:
            with socket.create_connection((session.host, session.port), ANSWER):
                return site_address(self._given, session.host)
        except OSError as error:
            raise PlanError(
                f'{self._host.name} cannot reach {session.coordinator} at '
                f'{session.host}:{session.port} ({error}): set training_address there to an '
                'address that devices reach') from None

    def _tag(self) -> int | None:
        tags = self.state.tags()
        return max((tag for found in tags.values() for tag in found), default=None)

    def _show(self, tag: int | None) -> None:
        """Have heartbeats say which training is here, and the newest tag of it."""
        session = self._plans.get(self._used)
        name = '' if session is None or session.training in self._over else state_name(session)
        if self._shown and self._shown != name:
            self.state.drop(self._shown)
        self._shown = name
        if name:
            self.state.drop(name)
            self.state.put(name, tag or 0, torch.empty(0))


def state_name(session: TrainingSession) -> str:
    """Return the name under which heartbeats say the newest tag of a training."""
    return f'{"paused" if session.paused else "training"} {session.training} {session.task}'


def read_state_name(name: str) -> tuple[bool, int, str] | None:
    """Return whether a training is paused, its number and its task; None for another name."""
    state, _, rest = name.partition(' ')
    number, _, task = rest.partition(' ')
    if state not in ('paused', 'training') or not number.isdecimal() or len(number) > 16 \
            or not task:
        return None
    return state == 'paused', int(number), task


def _same(one: TrainingSession, other: TrainingSession) -> bool:
    """Whether a worker of one session serves the other."""
    return (one.training, one.task) == (other.training, other.task) and \
        not apart(one.facts, other.facts)


def _reap(link: Link) -> None:
    time.sleep(ANSWER)
    link.kill()


def _nothing() -> None:
    """Let time pass."""
