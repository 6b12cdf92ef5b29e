# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""
A training on devices of a fleet, the coordinator's side: seats, lines, and the trainer's events.

The fleet's plan is a session: who takes part.  It changes when devices come or go; each device
keeps its seat, and its worker, as long as it stays.  Rounds go on meanwhile.
"""
from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
import json
import secrets
import threading
import time
from typing import Any, Protocol

from intradp_ros.cluster.plan_id import NO_PLAN, PlanId
from intradp_ros.core.shared_key import SharedKey
from intradp_ros.core.steady import Steady
from intradp_ros.runtime.member.line_way import LineWay, stream_of
from intradp_ros.runtime.transport.peer_channel import PeerChannel
from intradp_ros.runtime.transport.serial_executor import SerialExecutor
from intradp_ros.systems.training.layers.checkpoint import Checkpoint
from intradp_ros.systems.training.layers.task_facts import task_facts
from intradp_ros.systems.training.plan.prepared import Prepared
from intradp_ros.systems.training.plan.training_plan import Planner
from intradp_ros.systems.training.run.weight_exchange import Exchange, stream_key
from intradp_ros.systems.training.service.messages import read_report
from intradp_ros.systems.training.service.round_commit import Phase, RoundCommit
from intradp_ros.systems.training.service.session_plan import TrainingSession
from intradp_ros.systems.training.service.trainer import trainer_of, TrainingError
from intradp_ros.systems.training.service.training_job import JobOptions
from intradp_ros.wire.frames import Control, MalformedFrameError
from intradp_ros.wire.sanitise import quoted

#: Seconds that the first plan waits for devices that load the task still, when one is ready.
GATHERING = 5.0
#: Seconds after which training is given up where each device that is there says why it cannot.
HOPELESS = 10.0
#: Seconds that the last orders may take to arrive.
LAST_WORDS = 2.0
#: Seconds for which another may coordinate, as one that has just started does, until the training
#: is given up here.
LAPSE = 6.0
_TICK = 0.05
_SEAT_BITS = 52


class Coordination(Protocol):
    """What a session needs of a fleet's coordinator; all may be called from any thread."""

    channel: PeerChannel

    @property
    def leads(self) -> bool:
        """Whether it coordinates the fleet."""

    @property
    def holder(self) -> str:
        """Who coordinates it, '' for nobody."""

    @property
    def id(self) -> PlanId:  # noqa: A003
        """The number of the plan in use."""

    @property
    def alive(self) -> frozenset[str]:
        """The devices that are there."""

    @property
    def refusals(self) -> Mapping[str, str]:
        """Why devices refused the last session."""


class SessionFleet:
    """
    Devices of a fleet, and their trainer; a context, at whose end they are let go.

    :param coordinator: that of the fleet.
    :param change: has the fleet change to the session as it is now (`session`).
    :param rejected: counts what a device sent in vain: cause and text.
    :param log: takes why a device cannot train.
    :param address: where workers fetch and bring weights.
    :param training: number of the training.
    :param key: that of the fleet, if it has one.
    """

    def __init__(self, prepared: Prepared, planner: Planner, options: JobOptions,
                 progress: Callable[[RoundCommit], None], base: Checkpoint | None, *,
                 coordinator: Coordination, change: Callable[[], None],
                 rejected: Callable[[str, str], None], log: Callable[[str], None],
                 address: str, training: int,
                 key: SharedKey | None = None) -> None:
        settings, graph = options.settings, prepared.graph
        self.names = frozenset(prepared.topology.names)
        self.training = training
        self._coordinator, self._change, self._rejected = coordinator, change, rejected
        self._log, self._faults, self._said = log, dict[str, str](), dict[str, str]()
        exchange = Exchange(address, stream_key(key, training))
        self._session = TrainingSession(
            training, prepared.name, task_facts(prepared.task, graph, not prepared.images), {},
            coordinator.channel.name, *exchange.place, settings.timeout, settings.every)
        self._told = progress
        self.trainer = trainer_of(prepared.task, graph, planner, settings.timeout, exchange,
                                  self._progress, base, waits=True)
        self._ways: dict[str, LineWay] = {}
        self._joined: set[str] = set()
        self._lapsed, self._term = 0.0, NO_PLAN.term
        self._lock = threading.RLock()
        self._reports = SerialExecutor('training-reports')
        self._stop = threading.Event()
        self._ticking = threading.Thread(target=self._tick, name='training-lines', daemon=True)

    def session(self, alive: frozenset[str]) -> TrainingSession | None:
        """Return the session of the devices that are there; those that left lose their seats."""
        with self._lock:
            wanted = sorted(alive & self.names)
            for name in [name for name in self._ways if name not in wanted]:
                self.forget(name)
            for name in wanted:
                if name not in self._ways:
                    self._seat(name)
            self._session = replace(self._session, seats={
                name: way.number for name, way in sorted(self._ways.items())})
            return self._session if wanted else None

    def forget(self, name: str) -> None:
        """Count a device as lost, and what it says from now on as of the past."""
        with self._lock:
            if self._ways.pop(name, None) is not None and name in self._joined:
                self._joined.discard(name)
                self.trainer.events.put((name, None))

    def handle(self, peer: str, frame: Control) -> None:
        """Take lines of a device; MalformedFrameError if they make no sense."""
        stream, way = stream_of(frame), self._ways.get(peer)
        if way is not None and way.number == stream and \
                frame.session == self._coordinator.id.term:
            way.take(frame)

    def __enter__(self) -> SessionFleet:
        """Begin the first plan when the devices are ready."""
        self._ticking.start()
        try:
            self._change()
            ready, said = list[float](), list[str]()
            hopeful = begun = time.monotonic()

            def enough() -> bool:
                nonlocal hopeful
                there, now = self.trainer.commit.alive, time.monotonic()
                alive = self._coordinator.alive & self.names
                why = {**self._coordinator.refusals, **self._faults}
                if there or not alive or not alive <= why.keys():
                    hopeful = now
                if not alive and now - begun > HOPELESS and not said:
                    said.append(', '.join(sorted(self._coordinator.alive)))
                    self._log(f'waits for devices: none of {", ".join(sorted(self.names))} is '
                              'there, as this training counts on; '
                              + (f'there are {said[0]}' if said[0] else 'no other one is'))
                if now - hopeful > HOPELESS:
                    raise TrainingError('no device can train: ' + '; '.join(
                        f'{name}: {why[name]}' for name in sorted(alive)))
                if there and not ready:
                    ready.append(now)
                return bool(there) and (there >= set(self._ways) or now - ready[0] > GATHERING)
            self.trainer.gather(enough)
        except BaseException:
            self.__exit__(True)
            raise
        return self

    def __exit__(self, *error: object) -> None:
        """Have all devices end their workers, unless another coordinator goes on with them."""
        if self._coordinator.leads:
            self.trainer.close()
            end = time.monotonic() + LAST_WORDS
            while time.monotonic() < end and not all(w.idle for w in self._ways.values()):
                time.sleep(_TICK)
        self._stop.set()
        self._ticking.join()
        self._reports.close()
        self.trainer.exchange.close()

    def _progress(self, commit: RoundCommit) -> None:
        self._look_whether_it_leads(time.monotonic())
        if commit.plan is None:
            commit.course.number = PlanId(
                max(commit.number.term, self._coordinator.id.term), commit.number.epoch)
        paused = commit.phase is Phase.PAUSED and commit.paused
        if paused != self._session.paused and commit.plan is not None:
            self._session = replace(self._session, paused=paused)
            self._change()
        self._told(commit)

    def _look_whether_it_leads(self, now: float) -> None:
        """
        Wait for a while where another coordinates.

        In a new term all devices get new seats: they may have been another one's meanwhile.
        """
        if not self._coordinator.leads:
            self._lapsed = self._lapsed or now
            if now - self._lapsed > LAPSE:
                raise TrainingError(
                    f'{self._coordinator.holder or "another node"} coordinates the fleet now and '
                    'goes on with it: a goal with resume there joins it')
            return
        self._lapsed, term = 0.0, self._coordinator.id.term
        if term in (self._term, NO_PLAN.term):
            return
        if self._term != NO_PLAN.term:
            with self._lock:
                for name in tuple(self._ways):
                    self.forget(name)
            self._change()
        self._term = term

    def _seat(self, name: str) -> None:
        """Give a device a seat: lines of its own with the trainer."""
        def lines(found: list[str]) -> None:
            self._reports.put(lambda: self._take(name, way.number, found))
        way = LineWay(self._coordinator.channel, name, secrets.randbits(_SEAT_BITS),
                      lambda: self._coordinator.id, lines)
        self._ways[name] = way

    def _take(self, name: str, seat: int, lines: list[str]) -> None:
        """Take a device's reports, in the thread that reads them."""
        for line in lines:
            try:
                report = read_report(line)
            except MalformedFrameError as error:
                self._rejected(error.cause, f'{name}: {error}')
                continue
            with self._lock:
                way = self._ways.get(name)
                if way is None or way.number != seat:
                    return
                if report['report'] == 'fault':
                    self._faults[name] = why = report['error']
                    if self._said.get(name) != why:  # it is tried again and again
                        self._said[name] = why
                        self._log(f'{name} cannot train: {quoted(why)}')
                if report['report'] == 'joined':
                    self._faults.pop(name, None)
                    report['link'] = _Seat(self, name, report['child'])
                    self._joined.add(name)
                elif name not in self._joined:
                    continue
                ended = report['report'] == 'ended'
                self.trainer.events.put((name, None if ended else report))

    def _order(self, name: str, order: dict[str, Any]) -> None:
        way = self._ways.get(name)
        if way is not None:
            try:
                way.put(json.dumps(order))
            except OverflowError:
                self.forget(name)

    def _tick(self) -> None:
        steady = Steady('lines of a training', self._log)
        while not self._stop.wait(_TICK):
            for way in tuple(self._ways.values()):
                steady.do(way.tick, None)


class _Seat:
    """The way to a device's worker, for the trainer; `child` is the worker's number there."""

    def __init__(self, fleet: SessionFleet, name: str, child: int) -> None:
        self._fleet, self._name, self._child = fleet, name, child

    def send(self, order: Any) -> None:
        """Send an order; one to a device that is gone is dropped."""
        self._fleet._order(self._name, {**order, 'child': self._child})

    def kill(self) -> None:
        """Do nothing: the worker is the device's."""
