# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""
A device of a fleet: takes plans from the coordinator, runs its stages, answers who asks for it.

Which plan is prepared, used and let go is decided by `cluster/plan_holder.py`;
here its orders and answers are carried, and plans compiled.
"""
from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
import math
import secrets
import threading
import time

from intradp_ros.cluster import plan_holder
from intradp_ros.cluster.fleet_messages import (
    Abort,
    Claim,
    Commit,
    Goodbye,
    Heartbeat,
    LinkState,
    Prepare,
)
from intradp_ros.cluster.plan_holder import Load, PlanHolder
from intradp_ros.cluster.plan_id import PlanId
from intradp_ros.runtime.member.fleet_control import (
    FleetMessage,
    from_control,
    plan_id,
    plan_ids,
    to_control,
)
from intradp_ros.runtime.model import SharedModel
from intradp_ros.runtime.peer_channel import PeerChannel
from intradp_ros.runtime.pipeline.pipeline_client import PipelineClient
from intradp_ros.runtime.pipeline.stage_worker import Log, StageWorker
from intradp_ros.runtime.weights.exchange import WeightExchange, WeightPolicy
from intradp_ros.runtime.weights.frames import is_of_weights
from intradp_ros.runtime.worker_thread import Worker
from intradp_ros.schedule.stage_plan import StagePlan
from intradp_ros.wire.frames import Chunk, Control, ControlKind, Frame, MalformedFrameError
from intradp_ros.wire.quoting import quoted

#: Plans that may wait to be compiled; a coordinator waits for the last before it sends one more.
MAX_OFFERS = 4
#: Seconds between heartbeats.
HEARTBEAT = 0.2
#: A rate that was measured longer ago than this (s) is told no more.
_NEW_RATE = 1.0
_INCARNATION_BITS = 62


@dataclass(frozen=True, slots=True)
class Condition:
    """How a machine is: bytes of memory that plans may use, and the battery's share (or None)."""

    free_memory: float = 0.0
    battery: float | None = None


class FleetDevice:
    """
    One device on a channel; `client` is set where it also asks for inferences.

    It listens to `coordinators` only, and tells them every `heartbeat` (s) that it
    is there.  Plans are compiled on a thread of their own, while
    inferences go on.  `changed` is called when another plan is in use.
    Weights that a plan needs and that are not here are fetched from the plan's other
    devices, as far as the policy `weights` lets it.
    """

    def __init__(self, channel: PeerChannel, models: Mapping[str, SharedModel], log: Log,
                 changed: Callable[[], None] = lambda: None, *,
                 coordinators: Iterable[str] = ('coordinator',), heartbeat: float = HEARTBEAT,
                 condition: Callable[[], Condition] = Condition,
                 weights: WeightPolicy = WeightPolicy()) -> None:
        self.channel, self.log, self._changed = channel, log, changed
        self.coordinators = frozenset(coordinators)
        self.worker = StageWorker(channel, models, log)
        self.weights = WeightExchange(channel, models, weights, log)
        self.client: PipelineClient | None = None
        self._holder = PlanHolder(channel.name)
        self._condition = condition
        self._incarnation, self._beats = secrets.randbits(_INCARNATION_BITS), 0
        self._looked, self._computed = time.monotonic(), 0.0
        self._lock = threading.RLock()  # orders of several coordinators come on several threads
        self._plans: Worker[Load] = Worker(self._load, self._plan_failed, MAX_OFFERS,
                                           f'plans-{channel.name}')
        self._stop = threading.Event()
        self._beating = threading.Thread(target=self._beat_on, args=(heartbeat,),
                                         name=f'heartbeat-{channel.name}', daemon=True)
        channel.open(self.coordinators)
        channel.listen(self.handle)
        self._beating.start()

    @property
    def committed(self) -> PlanId:
        """The plan in use."""
        return self._holder.committed

    def handle(self, peer: str, frame: Frame) -> None:
        """Sort one frame; what is malformed is counted and dropped."""
        try:
            if self.client:
                self.client.heard(peer)
            if is_of_weights(frame):
                self.weights.handle(peer, frame)
            elif isinstance(frame, Chunk):
                self.worker.handle(peer, frame)
            elif peer in self.coordinators:
                self._ordered(peer, from_control(peer, frame))
            else:
                self._control(peer, frame)
        except MalformedFrameError as error:
            self.worker.reject(error.cause, str(error))

    def close(self) -> None:
        """Stop all inferences, with a word to the coordinators; the channel is the caller's."""
        self._stop.set()
        self._beating.join()
        self._plans.close()
        self.weights.close()
        if self.client:
            self.client.close()
        self.worker.close()
        self._say(Goodbye(self.channel.name))

    def _control(self, peer: str, frame: Control) -> None:
        kind = frame.kind
        if kind is ControlKind.PING:
            self._drain(peer, plan_id(frame.body.get('oldest')))
            self.channel.send(peer, Control(ControlKind.PONG, frame.session, frame.epoch, 0, {
                'held': [list(held) for held in self.worker.held]}))
        elif kind is ControlKind.PONG and self.client:
            self.client.heard(peer, plan_ids(frame.body.get('held')))
        elif kind is ControlKind.FAILED and self.client:
            self.client.failed(peer, frame.inference, quoted(frame.body.get('reason')))
        else:
            self.worker.handle(peer, frame)

    def _ordered(self, peer: str, message: FleetMessage) -> None:
        """Take what a coordinator says."""
        if isinstance(message, Claim):
            with self._lock:
                self._holder = plan_holder.heard_term(self._holder, message.term)
        elif isinstance(message, Prepare | Commit | Abort):
            with self._lock:
                self._answer(peer, plan_holder.ordered(self._holder, message))

    def _answer(self, peer: str, result: plan_holder.Result) -> None:
        """Take a step of the plans that are held, and say or load what follows from it."""
        before, (self._holder, reply) = self._holder, result
        self.worker.keep(self._holder.held)
        if isinstance(reply, Load):
            self._plans.put(reply)
        elif reply:
            self.channel.send(peer, to_control(reply))
        if before.committed != self._holder.committed:
            self._use(self._holder.committed)

    def _load(self, load: Load) -> None:
        """Compile a plan, once its weights are here, and tell the coordinators what came of it."""
        if load.id not in self._holder.loading:
            return  # it was given up while weights were fetched
        try:
            plan = StagePlan.from_json(load.plan)
            self.channel.open((plan.source, *plan.devices))
            model = self.worker.models.get(plan.digest) or self.weights.model(
                plan, partial(self._fetched, load))
            programs = self.worker.compile(plan, model) if model else None
        except Exception as error:  # noqa: B902 - the plan's fault, or out of memory: say so
            self.worker.reject('plan', f'{type(error).__name__}: {error}')
            self._give_up(load, quoted(error))
            return
        if programs is None:
            return  # weights are fetched
        with self._lock:
            self._holder, reply = plan_holder.loaded(self._holder, load.id)
            if reply:
                self.worker.hold(load.id, programs)
        if reply and not isinstance(reply, Load):
            self._say(reply)

    def _fetched(self, load: Load, reason: str) -> None:
        """Go on with a plan whose weights were fetched, or are not to be had."""
        if reason:
            self._give_up(load, reason)
        else:
            self._plans.put(load)

    def _give_up(self, load: Load, reason: str) -> None:
        with self._lock:
            self._holder, reply = plan_holder.failed(self._holder, load.id, reason)
        if reply and not isinstance(reply, Load):
            self._say(reply)

    def _use(self, id_: PlanId) -> None:
        programs = self.worker.programs(id_)
        self.log(f'plan {id_.term:#x}.{id_.epoch} in use: {len(programs.plan.stages)} stages on '
                 f'{", ".join(programs.plan.devices)}; {programs.parameter_bytes} bytes of '
                 'weights are read here')
        if programs.asks and self.client:
            self.client.use(id_)
        self._changed()

    def _drain(self, peer: str, oldest: PlanId) -> None:
        """Let go of the last plan when its asker says that all under way are of newer ones."""
        with self._lock:
            held = self._holder
            if held.previous in held.held and held.previous < oldest \
                    and peer == self.worker.programs(held.committed).plan.source:
                self._holder = plan_holder.drained(held)
                self.worker.keep(self._holder.held)

    def _beat_on(self, heartbeat: float) -> None:
        while not self._stop.is_set():
            self._say(self._heartbeat())
            if self.client:
                self._drain(self.channel.name, self.client.oldest)
            self._stop.wait(heartbeat)

    def _heartbeat(self) -> Heartbeat:
        self._beats += 1
        now, computed = time.monotonic(), self.worker.executor.busy
        load = (computed - self._computed) / max(1e-9, now - self._looked)
        self._looked, self._computed = now, computed
        held, condition = self._holder, self._condition()
        return Heartbeat(
            self.channel.name, self._incarnation, self._beats, min(1.0, load),
            condition.free_memory, condition.battery, self._links(), held.term, held.committed,
            frozenset(held.held), self.client.new_latencies() if self.client else ())

    def _links(self) -> dict[str, LinkState]:
        """Return what was measured lately of the ways to the devices of the plan in use."""
        committed, found = self._holder.committed, {}
        plan = self.worker.programs(committed).plan if committed in self.worker.held else None
        for name in plan.devices if plan else ():
            if name != self.channel.name:
                report = self.channel.report(name)
                if report.age < _NEW_RATE and 0 < report.send_rate < math.inf:
                    found[name] = LinkState(report.send_rate, report.round_trip / 2)
        return found

    def _say(self, message: FleetMessage) -> None:
        for name in self.coordinators:
            self.channel.send(name, to_control(message))

    def _plan_failed(self, error: Exception) -> None:
        self.log(f'{type(error).__name__}: {error}')
