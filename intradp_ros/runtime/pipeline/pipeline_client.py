# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""
Who asks a fleet for inferences: several in flight, answers in order, none lost.

Frames go through the pipeline as long as a route's devices are heard and hold
the plan.  What does not come back, because a device is silent, failed or is
late, the asker finishes itself from what it has.  After a failure one frame
tries the pipeline at a time, until one comes back.
"""
from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
import math
import threading
import time

import torch

from intradp_ros.cluster.plan_id import NO_PLAN, PlanId
from intradp_ros.core.steady import Steady
from intradp_ros.runtime.execution.recovery import finish_alone, held_pieces
from intradp_ros.runtime.models.model import SharedModel
from intradp_ros.runtime.pipeline.fleet_patience import AnswerTimes, FleetPatience
from intradp_ros.runtime.pipeline.fleet_result import FleetResult
from intradp_ros.runtime.pipeline.interleaved_executor import Outputs, ProgramRun
from intradp_ros.runtime.pipeline.request_queue import Request, RequestQueue, State
from intradp_ros.runtime.pipeline.stage_programs import Route, StagePrograms
from intradp_ros.runtime.pipeline.stage_worker import StageWorker, TamperedError
from intradp_ros.runtime.transport.peer_channel import PeerChannel
from intradp_ros.runtime.transport.serial_executor import SerialExecutor
from intradp_ros.runtime.transport.timeline import Event
from intradp_ros.split.regions.region import Region
from intradp_ros.wire.frames import Control, ControlKind, Stamp

TICK = 0.02


@dataclass
class _PendingRequest:
    """A request with its inputs; `begun` (s) and `devices` once it is in flight."""

    request: Request
    inputs: Mapping[int, torch.Tensor]
    stamp: Stamp
    begun: float = 0.0
    plan: PlanId = NO_PLAN
    route: Route | None = None
    given_up: str = ''
    tampered: bool = False
    discarded: str = ''
    answer: FleetResult | None = None


@dataclass(frozen=True, slots=True)
class _Used:
    """The plan in use, its programs, and how many inferences may be in flight."""

    id: PlanId  # noqa: A003
    programs: StagePrograms | None
    inflight: int


@dataclass
class _Peer:
    """What is known of a device of the plan: when it was last heard (s), and what it holds."""

    heard: float
    held: frozenset[PlanId] = field(default_factory=frozenset)


class PipelineClient:
    """
    Asks the fleet for inferences of one model, through the stage worker of its own device.

    :param worker, model: the asker's own part in the pipeline; the model it asks for.
    :param answered: called with every answer, in the order of asking, on a thread of its own.
    :param release: called often, with the oldest plan of which something is in flight.
    :param inflight, waiting: inferences in the pipeline at most (0: two for each stage and one
        more), and those that may wait before the oldest is dropped.
    :param patience: when the asker stops waiting for others.
    """

    def __init__(self, channel: PeerChannel, worker: StageWorker, model: SharedModel,
                 answered: Callable[[FleetResult], None],
                 release: Callable[[PlanId], None] = lambda oldest: None, *, inflight: int = 0,
                 waiting: int = 64, patience: FleetPatience = FleetPatience()) -> None:
        self.channel, self.worker, self.model = channel, worker, model
        self.patience = patience
        self._answered, self._release, self._wanted = answered, release, inflight
        self._queue = RequestQueue(1 << 16, waiting)
        self._flights: dict[int, _PendingRequest] = {}
        self._used = _Used(NO_PLAN, None, max(1, inflight))
        self._next: tuple[int, PlanId] | None = None  # a plan that is used from a number on
        self._peers: dict[str, _Peer] = {}
        self._trusted = True
        self._begun = 0  # the highest number that was begun
        self._times = AnswerTimes(patience)
        self._steady = Steady('the watch of a pipeline')
        self._answers = SerialExecutor(f'answers-{channel.name}')
        self._lock = threading.RLock()
        self._stop = threading.Event()
        self._watch = threading.Thread(target=self._tick_on, name='pipeline-watch', daemon=True)
        self._watch.start()

    @property
    def plan(self) -> PlanId:
        """The plan that inferences go by now."""
        return self._used.id

    @property
    def oldest(self) -> PlanId:
        """The oldest plan that an inference in flight goes by, else the one in use."""
        with self._lock:
            return min((f.plan for f in self._flights.values() if f.plan != NO_PLAN),
                       default=self._used.id)

    def counts(self) -> Mapping[str, int]:
        """Return how many requests are in each state."""
        with self._lock:
            return self._queue.counts()

    def new_latencies(self) -> tuple[float, ...]:
        """Return the seconds of the answers since the last call, infinite without results."""
        with self._lock:
            return self._times.unreported()

    def unavailable_reason(self) -> str:
        """Return why no route can be used now; '' if one can."""
        with self._lock:
            if self._used.programs is None:
                return 'no plan is in use'
            now = time.monotonic()
            found = [self._route_unavailable_reason(route, self._used.id, now)
                     for route in self._used.programs.routes]
            return '' if '' in found else found[0]

    def ask(self, inputs: Sequence[torch.Tensor], *, stamp: Stamp = Stamp(),
            deadline: float = math.inf) -> int:
        """
        Ask for an inference that is of use for `deadline` seconds; return its number.

        Leave the inputs unchanged until it is answered.

        :raises ValueError: if the inputs are not of the shapes and dtypes that the model was
            captured with.
        """
        by_value = self._checked(inputs)
        with self._lock:
            request = self._queue.ask(time.monotonic(), deadline)
            self._flights[request.number] = _PendingRequest(request, by_value, stamp)
            self._go_on()
        return request.number

    def cancel(self, number: int, reason: str = 'cancelled') -> None:
        """Answer a request without results, unless it has its answer; stop what is in flight."""
        with self._lock:
            flight = self._flights.get(number)
            if flight is None or flight.request.state is State.ANSWERED:
                return
            flight.discarded = reason
            if flight.request.state is State.INFLIGHT and flight.plan != NO_PLAN:
                self._give_up(flight, reason)
            self._answer(flight, None, reason)
            self._go_on()

    def use(self, id_: PlanId, boundary: int = 0) -> None:
        """Let inferences from a number on (0: from now on) go by a plan that is committed."""
        with self._lock:
            self._turn()  # to one that waits for its boundary still
            self._next = boundary, id_
            if self._used.programs is None or boundary <= self._begun + 1:
                self._turn()
            self._go_on()

    def keep(self, ids: Collection[PlanId]) -> None:
        """Learn which plans are held still."""
        with self._lock:
            if self._used.id not in ids:
                self._turn()

    def _turn(self) -> None:
        """Go by the next plan from now on."""
        if self._next:
            (_, id_), self._next = self._next, None
            programs, now = self.worker.programs(id_), time.monotonic()
            last = self._used.id
            self._used = _Used(id_, programs, self._wanted or 2 * len(programs.plan.stages) + 1)
            self._trusted = True
            flying = {name for flight in self._flights.values() if flight.route
                      for name in flight.route.schedule.programs}
            self._peers = {name: peer for name, peer in self._peers.items() if name in flying}
            for name in programs.plan.devices:
                if name != self.channel.name:
                    self._peers[name] = _Peer(now, frozenset({id_, last}))

    def heard(self, peer: str, held: frozenset[PlanId] | None = None) -> None:
        """Hear of a device; `held` are the plans that it says it holds."""
        known = self._peers.get(peer)
        if known:
            known.heard = time.monotonic()
            known.held = known.held if held is None else held

    def failed(self, peer: str, number: int, reason: str, tampered: bool = False) -> None:
        """Hear of a device that its part failed; of what was `tampered` with nothing is used."""
        with self._lock:
            flight = self._flights.get(number)
            if flight and flight.route and peer in flight.route.schedule.programs:
                flight.tampered |= tampered
                self._give_up(flight, f'{peer}: {reason}')

    def close(self) -> None:
        """Stop; what was not answered is answered without results."""
        self._stop.set()
        self._watch.join()
        with self._lock:
            for number in list(self._flights):
                self.cancel(number, 'the asker stops')
        self._answers.close()

    def _checked(self, inputs: Sequence[torch.Tensor]) -> dict[int, torch.Tensor]:
        graph = self.model.split.graph
        wanted = [(graph.values[v].shape, graph.values[v].dtype) for v in graph.inputs]
        given = [(tuple(x.shape), x.dtype) for x in inputs]
        if given != wanted:
            raise ValueError(f'the model was captured with inputs {wanted}, got {given}')
        return dict(zip(graph.inputs, inputs))

    def _go_on(self) -> None:
        """Begin what may begin, and hand out the answers whose turn it is."""
        self._steady.do(self._begin_next, None)
        self._steady.do(self._hand_out, None)

    def _begin_next(self) -> None:
        while self._may_begin() and (request := self._queue.begin(time.monotonic())):
            flight = self._flights[request.number]
            try:
                self._begin(flight)
            except Exception as error:  # noqa: BLE001 - it was begun: it needs an answer
                flight.plan, flight.route = NO_PLAN, None
                flight.given_up = f'{type(error).__name__}: {error}'
                self.worker.executor.call(partial(self._alone, flight, None))

    def _hand_out(self) -> None:
        for request in self._queue.deliver():
            flight = self._flights.pop(request.number)
            answer = flight.answer or self._unanswered(flight)
            self._times.answered(math.inf if answer.outputs is None else answer.latency)
            self._answers.put(partial(self._answered, answer))

    def _may_begin(self) -> bool:
        flying = [f for f in self._flights.values() if f.request.state is State.INFLIGHT]
        alone = sum(f.plan == NO_PLAN or bool(f.given_up) for f in flying)
        if self._usable() is None:
            return alone < 1
        limit = self._used.inflight if self._trusted else 1
        return len(flying) - alone < limit or (not self._trusted and alone < 1)

    def _usable(self, preferred: int = 0) -> int | None:
        """Return a route whose devices are heard and hold the plan, the preferred one first."""
        if self._used.programs is None:
            return None
        now, routes = time.monotonic(), self._used.programs.routes
        return next((k for k in (preferred, *range(len(routes)))
                     if not self._route_unavailable_reason(routes[k], self._used.id, now)), None)

    def _route_unavailable_reason(self, route: Route, plan: PlanId, now: float) -> str:
        for name, program in route.schedule.programs.items():
            peer = self._peers.get(name)
            if not program or peer is None:
                continue
            # Who acknowledges chunks is there, however long a PONG waits in a full link.
            if self.channel.doubted(name):
                return f'two processes speak as {name}'
            silence = min(now - peer.heard, self.channel.report(name).acknowledged)
            if silence > self.patience.silence:
                return f'{name} is silent for {silence:.1f} s'
            if plan not in peer.held:
                return f'{name} does not hold the plan'
        return ''

    def _begin(self, flight: _PendingRequest) -> None:
        flight.begun, number = time.monotonic(), flight.request.number
        self._begun = max(self._begun, number)
        if self._next and number >= self._next[0]:
            self._turn()
        tries = sum(f.plan != NO_PLAN and f.request.state is State.INFLIGHT and not f.given_up
                    for f in self._flights.values())
        route = self._usable(self._used.programs.route_of(number)) if self._used.programs else None
        if self._used.programs is None or route is None or (not self._trusted and tries):
            flight.given_up = self.unavailable_reason() or 'the pipeline failed lately'
            self.worker.executor.call(partial(self._alone, flight, None))
            return
        flight.plan, flight.route = self._used.id, self._used.programs.routes[route]
        self.worker.begin(self._used.id, number, flight.inputs, partial(self._finished, flight),
                          route=route, stamp=flight.stamp)

    def _finished(self, flight: _PendingRequest, run: ProgramRun, outputs: Outputs | None,
                  error: Exception | None, events: tuple[Event, ...]) -> None:
        """Take what an inference came to (on the executor's thread)."""
        try:
            self._take(flight, run, outputs, error, events)
        except Exception as failure:  # noqa: BLE001 - it needs an answer all the same
            flight.given_up = flight.given_up or f'{type(failure).__name__}: {failure}'
            self._alone(flight, run)

    def _take(self, flight: _PendingRequest, run: ProgramRun, outputs: Outputs | None,
              error: Exception | None, events: tuple[Event, ...]) -> None:
        if flight.route and (doubted := [name for name in flight.route.schedule.programs
                                         if self.channel.doubted(name)]):
            outputs, error = None, TamperedError(f'two processes speak as {doubted[0]}')
        if flight.tampered and outputs is not None:
            outputs, error = None, TamperedError(flight.given_up)
        if outputs is None and not flight.discarded:
            with self._lock:
                flight.tampered |= isinstance(error, TamperedError)
                self._give_up(flight, f'{type(error).__name__}: {error}')
            self._alone(flight, run)
            return
        with self._lock:
            if outputs is not None and not flight.given_up:
                self._trusted = True
                self._times.came(run.inference, flight.begun, time.monotonic())
            if not flight.discarded and outputs is not None:
                self._answer(flight, outputs, flight.given_up, events)
            self._go_on()

    def _alone(self, flight: _PendingRequest, run: ProgramRun | None) -> None:
        """Compute what is missing of an inference here (on the executor's thread)."""
        outputs, reason = None, flight.given_up
        if not flight.discarded:
            try:
                outputs = finish_alone(self.model.split, self._pieces(flight, run),
                                       self.model.parameters)
            except Exception as error:  # noqa: B902 - out of memory, say: an answer all the same
                reason = f'{reason}; alone: {type(error).__name__}: {error}'
        with self._lock:
            self._answer(flight, outputs, reason)
            self._go_on()

    def _pieces(self, flight: _PendingRequest, run: ProgramRun | None,
                ) -> list[tuple[int, Region, torch.Tensor]]:
        """Return what the asker has of an inference: inputs, what it computed, what came."""
        split = self.model.split
        pieces = [(v, split.whole(v), tensor) for v, tensor in flight.inputs.items()]
        if run and run.execution and flight.route and not flight.tampered:
            pieces += [p for p in held_pieces(run.execution) if p[0] not in flight.inputs]
            transfers = flight.route.schedule.transfers
            pieces += [(transfers[index].value, transfers[index].region, tensor)
                       for index, tensor in run.mailbox.left().items()]
        return pieces

    def _give_up(self, flight: _PendingRequest, reason: str) -> None:
        """Stop waiting for the others; the executor will finish the inference alone."""
        if flight.given_up:
            return
        flight.given_up, number = reason, flight.request.number
        if not flight.discarded:
            self._trusted = False
        self._steady.do(partial(self.worker.give_up, flight.plan, number, reason), None)
        for name in self._peers:
            self._send(name, Control(ControlKind.CANCEL, *flight.plan, number))

    def _send(self, name: str, frame: Control) -> None:
        self._steady.do(partial(self.channel.send, name, frame), None)

    def _answer(self, flight: _PendingRequest, outputs: Outputs | None, reason: str,
                events: tuple[Event, ...] = ()) -> None:
        request, now = flight.request, time.monotonic()
        if not self._queue.answer(request.number, reason):
            return
        begun = flight.begun or now
        flight.answer = FleetResult(
            request.number, None if outputs is None else self.model.results(outputs),
            outputs is not None and not flight.given_up, reason, now - request.asked,
            begun - request.asked, flight.plan, flight.stamp, events)

    def _unanswered(self, flight: _PendingRequest) -> FleetResult:
        """Return the answer of a request that the queue dropped."""
        request = flight.request
        waited = time.monotonic() - request.asked
        return FleetResult(request.number, None, False, request.reason, waited, waited, NO_PLAN,
                      flight.stamp)

    def _tick_on(self) -> None:
        steady, pinged = self._steady, -math.inf
        while not self._stop.wait(TICK):
            now = time.monotonic()
            if now - pinged >= self.patience.heartbeat:
                pinged = now
                steady.do(self._ping, None)
            with self._lock:
                steady.do(partial(self._look, now), None)
                self._go_on()

    def _ping(self) -> None:
        oldest = self.oldest
        self._steady.do(partial(self._release, oldest), None)
        body = {'oldest': list(oldest)}
        for name in tuple(self._peers):
            self._send(name, Control(ControlKind.PING, *self._used.id, 0, body))

    def _look(self, now: float) -> None:
        """Give up what is late, or goes through a device that is silent."""
        for request in self._queue.late(now):
            self.cancel(request.number, f'late: not done within '
                                        f'{1e3 * (request.deadline - request.asked):.0f} ms')
        for flight in tuple(self._flights.values()):
            if flight.route and flight.request.state is State.INFLIGHT and not flight.given_up:
                reason = self._route_unavailable_reason(flight.route, flight.plan, now) \
                    or self._times.lateness(flight.request.number, flight.begun, now)
                if reason:
                    self._give_up(flight, reason)
