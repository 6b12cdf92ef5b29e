# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""
A device of a fleet: takes plans from the coordinator, runs its stages, answers who asks for it.

What it answers says which plans it holds, so that a device that started anew
is known as one that holds none.
"""
from __future__ import annotations

from collections.abc import Callable, Mapping
import time
from typing import Any

from intradp_ros.cluster.plan_id import PlanId
from intradp_ros.runtime.model import SharedModel
from intradp_ros.runtime.peer_channel import PeerChannel
from intradp_ros.runtime.pipeline.pipeline_client import PipelineClient
from intradp_ros.runtime.pipeline.stage_worker import Log, StageWorker
from intradp_ros.runtime.worker_thread import Worker
from intradp_ros.schedule.stage_plan import StagePlan
from intradp_ros.wire.frames import Chunk, Control, ControlKind, Frame, MalformedFrameError
from intradp_ros.wire.quoting import quoted

Work = tuple[str, Control]
#: Plans that may wait to be compiled; a coordinator waits for the last before it sends one more.
MAX_OFFERS = 4


class FleetDevice:
    """
    One device on a channel; `client` is set where it also asks for inferences.

    Plans are compiled on a thread of their own, while inferences go on.
    `changed` is called when another plan is in use.
    """

    def __init__(self, channel: PeerChannel, models: Mapping[str, SharedModel], log: Log,
                 changed: Callable[[], None] = lambda: None) -> None:
        self.channel, self.log, self._changed = channel, log, changed
        self.worker = StageWorker(channel, models, log)
        self.client: PipelineClient | None = None
        self._plans: Worker[Work] = Worker(self._take_plan, self._plan_failed, MAX_OFFERS,
                                           f'plans-{channel.name}')
        channel.listen(self.handle)

    def handle(self, peer: str, frame: Frame) -> None:
        """Sort one frame; what is malformed is counted and dropped."""
        try:
            if self.client:
                self.client.heard(peer)
            if isinstance(frame, Chunk):
                self.worker.handle(peer, frame)
            else:
                self._control(peer, frame)
        except MalformedFrameError as error:
            self.worker.reject(error.cause, str(error))

    def close(self) -> None:
        """Stop all inferences; the channel is the caller's."""
        self._plans.close()
        if self.client:
            self.client.close()
        self.worker.close()

    def _control(self, peer: str, frame: Control) -> None:
        kind = frame.kind
        if kind in (ControlKind.PREPARE, ControlKind.COMMIT, ControlKind.ABORT):
            self._plans.put((peer, frame))
        elif kind is ControlKind.PING:
            self.channel.send(peer, Control(ControlKind.PONG, frame.session, frame.epoch, 0, {
                'held': [list(held) for held in self.worker.held],
                'committed': list(self.worker.committed), 'finished': self.worker.finished}))
        elif kind is ControlKind.PONG and self.client:
            self.client.heard(peer, plan_ids(frame.body.get('held')))
        elif kind is ControlKind.FAILED and self.client:
            self.client.failed(peer, frame.inference, quoted(frame.body.get('reason')))
        else:
            self.worker.handle(peer, frame)

    def _take_plan(self, work: Work) -> None:
        """Prepare, commit or abort, and tell the coordinator what came of it."""
        peer, frame = work
        id_ = PlanId(frame.session, frame.epoch)
        try:
            answer = self._plan(id_, frame)
        except Exception as error:  # noqa: B902 - the plan's fault, or out of memory: say so
            self.worker.reject('plan', f'{type(error).__name__}: {error}')
            self._tell(peer, ControlKind.REFUSE, id_, {'reason': quoted(error)})
            return
        if answer is not None:
            self._tell(peer, ControlKind.READY, id_, answer)

    def _plan(self, id_: PlanId, frame: Control) -> Mapping[str, Any] | None:
        if frame.kind is ControlKind.PREPARE:
            start = time.monotonic()
            if id_ not in self.worker.held:
                plan = StagePlan.from_json(frame.body.get('plan'))
                self.channel.open((plan.source, *plan.devices))
                programs = self.worker.prepare(id_, plan)
            else:
                programs = self.worker.programs(id_)
            return {'seconds': time.monotonic() - start, 'bytes': programs.parameter_bytes}
        if frame.kind is ControlKind.ABORT:
            self.worker.abort(id_)
            return None
        self._commit(id_)
        return None

    def _commit(self, id_: PlanId) -> None:
        if id_ == self.worker.committed:
            return
        self.worker.commit(id_)
        programs = self.worker.programs(id_)
        self.log(f'plan {id_.term:#x}.{id_.epoch} in use: {len(programs.plan.stages)} stages on '
                 f'{", ".join(programs.plan.devices)}; {programs.parameter_bytes} bytes of '
                 'weights are read here')
        if programs.asks and self.client:
            self.client.use(id_)
        self._changed()

    def _plan_failed(self, error: Exception) -> None:
        self.log(f'{type(error).__name__}: {error}')

    def _tell(self, peer: str, kind: ControlKind, id_: PlanId, body: Mapping[str, Any]) -> None:
        self.channel.send(peer, Control(kind, *id_, 0, body))


def plan_ids(data: Any) -> frozenset[PlanId]:
    """
    Return the plans that a frame's body names.

    Raises
    ------
    MalformedFrameError
        If they are no list of at most 16 pairs of whole numbers.

    """
    if not isinstance(data, list) or len(data) > 16:
        raise MalformedFrameError('plans that are no short list', 'plans')
    return frozenset(plan_id(item) for item in data)


def plan_id(item: Any) -> PlanId:
    """Return the plan that a pair of whole numbers names; MalformedFrameError otherwise."""
    if not isinstance(item, list) or len(item) != 2 or not all(
            type(number) is int and 0 <= number < 1 << 64 for number in item):
        raise MalformedFrameError('a plan that is not two whole numbers', 'plans')
    return PlanId(*item)
