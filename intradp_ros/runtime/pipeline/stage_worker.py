# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""
A device's part in pipelines: holds the plans that were prepared, and runs its stages of them.

Frames of a plan that is not held are rejected and counted: nothing of a
former epoch reaches an inference of the present one.
"""
from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from functools import partial
import threading
import time

import torch

from intradp_ros.cluster.plan_id import PlanId
from intradp_ros.runtime.models.model import SharedModel
from intradp_ros.runtime.pipeline.interleaved_executor import (
    InterleavedExecutor,
    Outputs,
    ProgramRun,
)
from intradp_ros.runtime.pipeline.stage_programs import (
    compile_stages,
    reordered,
    Route,
    StagePrograms,
)
from intradp_ros.runtime.transport.arrivals import Arrivals
from intradp_ros.runtime.transport.mailbox import InferenceAbandonedError, Mailbox
from intradp_ros.runtime.transport.peer_channel import PeerChannel
from intradp_ros.runtime.transport.timeline import Event
from intradp_ros.runtime.transport.traffic import Traffic
from intradp_ros.schedule.stage_plan import PlanError, StagePlan
from intradp_ros.wire.chunking import ExpectedTransfer, Reassembler, TAMPERED
from intradp_ros.wire.cutting import cut_into_chunks
from intradp_ros.wire.frames import Chunk, Control, ControlKind, Frame, MalformedFrameError, Stamp
from intradp_ros.wire.rejections import Rejections
from intradp_ros.wire.sanitise import quoted

Log = Callable[[str], None]
Finished = Callable[[ProgramRun, Outputs | None, Exception | None, tuple[Event, ...]], None]
#: Inferences of a plan that a device may have begun; an asker has fewer in flight.
MAX_OPEN = 64


class TamperedError(InferenceAbandonedError):
    """What came for an inference may not be of whom it says: nothing of it is used."""


@dataclass
class _Inference:
    """One inference that the device takes part in."""

    id: int
    route: int
    arrivals: Arrivals
    run: ProgramRun
    stopped: bool = False
    tampered: bool = False


@dataclass
class _Held:
    """A plan with the inferences of it that are open here."""

    id: PlanId
    programs: StagePrograms
    reassembler: Reassembler
    open: dict[int, _Inference] = field(default_factory=dict)
    ended: deque[int] = field(default_factory=lambda: deque(maxlen=4 * MAX_OPEN))


class StageWorker:
    """
    Runs the stages of one device on its executor; the channel's threads only sort frames.

    `models` is the device's own catalogue by digest.  The owner of the
    channel hands frames to `handle`.
    """

    def __init__(self, channel: PeerChannel, models: Mapping[str, SharedModel], log: Log) -> None:
        self.channel, self.models, self.log = channel, dict(models), log
        self.device = channel.name
        self.executor = InterleavedExecutor(f'stages-{self.device}')
        self.sent, self.received = Traffic(), Traffic()
        self.finished = 0
        self._failures = Rejections()
        self._held: dict[PlanId, _Held] = {}
        self._opening = threading.Lock()  # frames of several peers come on several threads

    @property
    def held(self) -> tuple[PlanId, ...]:
        """The plans that are prepared, the newest last."""
        return tuple(sorted(self._held))

    def programs(self, plan: PlanId) -> StagePrograms:
        """Return a plan that is held; KeyError otherwise."""
        return self._held[plan].programs

    def compile(self, plan: StagePlan, model: SharedModel | None = None,  # noqa: A003
                ) -> StagePrograms:
        """
        Compile a plan's stages for this device; nothing is held yet.

        `model` is one that has the weights of these stages at least; by
        default it is that of the catalogue.

        :raises PlanError: if the plan is of a model that is not in the catalogue, or does not fit
            it.
        """
        if model is None and plan.digest not in self.models:
            have = ', '.join(digest[:12] for digest in self.models) or 'none'
            raise PlanError(f'{self.device} has no model {quoted(plan.digest[:12])}, it has '
                            f'{have}: load the same model, weights and input shape everywhere')
        model = model or self.models[plan.digest]
        for held in tuple(self._held.values()):
            if again := reordered(model, held.programs, plan):
                return again
        return compile_stages(model, plan, self.device)

    def hold(self, id_: PlanId, programs: StagePrograms) -> None:
        """Take inferences of a plan from now on."""
        self._held[id_] = _Held(id_, programs, Reassembler(partial(self._expected, id_), MAX_OPEN))

    def keep(self, ids: Collection[PlanId]) -> None:
        """Forget all plans but these, with what is in flight of them."""
        for id_ in [held for held in self._held if held not in ids]:
            self._forget(id_, 'the plan is over')

    def begin(self, id_: PlanId, inference: int, inputs: Mapping[int, torch.Tensor],
              finished: Finished, *, route: int, stamp: Stamp = Stamp()) -> None:
        """
        Begin an inference as the device that has its inputs; `inputs` are by value.

        `route` is an index of the plan's routes.  `finished` is called by the
        executor with the outputs, or with what the inference failed with:
        InferenceAbandonedError after `give_up`.
        """
        held = self._held[id_]
        self._open(held, inference, route, stamp, inputs, finished)

    def give_up(self, id_: PlanId, inference: int, reason: str) -> None:
        """Stop an inference; send and take nothing more of it."""
        held = self._held.get(id_)
        found = held.open.get(inference) if held else None
        if held and found:
            found.stopped = True
            found.arrivals.mailbox.fail(reason)
            self.channel.abandon(id_.term, inference)

    def handle(self, peer: str, frame: Frame) -> None:
        """Take a chunk or a CANCEL of a plan; MalformedFrameError if it is none that is held."""
        id_ = PlanId(frame.session, frame.epoch)
        held = self._held.get(id_)
        if held is None:
            raise MalformedFrameError(f'plan {id_}, held are {self.held}', 'epoch')
        if isinstance(frame, Chunk):
            self._chunk(held, peer, frame)
        elif frame.kind is ControlKind.CANCEL and peer == held.programs.plan.source:
            held.ended.append(frame.inference)
            self.give_up(id_, frame.inference, 'cancelled by the asker')
        else:
            raise MalformedFrameError(f'{frame.kind.name} from {quoted(peer)}', 'kind')

    def close(self) -> None:
        """Stop all inferences and the executor."""
        for id_ in list(self._held):
            self._forget(id_, 'the device stops')
        self.executor.close()

    def _forget(self, id_: PlanId, reason: str) -> None:
        held = self._held[id_]
        for inference in list(held.open):
            self.give_up(id_, inference, reason)
        del self._held[id_]

    def _expected(self, id_: PlanId, chunk: Chunk) -> ExpectedTransfer | None:
        held = self._held.get(id_)
        route = held and _route(held, chunk)
        return route.expected[chunk.transfer] if route else None

    def _chunk(self, held: _Held, peer: str, chunk: Chunk) -> None:
        route = _route(held, chunk)
        if route is None or route.schedule.transfers[chunk.transfer].source != peer:
            raise MalformedFrameError(
                f'{quoted(peer)} sends transfer {chunk.transfer} of route {chunk.schedule}: '
                'the plan has no such thing', 'unexpected')
        found = self._inference(held, chunk)
        if self.channel.doubted(peer):
            self._tampered(held, found)
            raise MalformedFrameError(f'two processes speak as {quoted(peer)}', TAMPERED)
        try:
            found.arrivals.add(chunk)
        except MalformedFrameError as error:
            if error.cause == TAMPERED:
                self._tampered(held, found)
            raise

    def _tampered(self, held: _Held, found: _Inference) -> None:
        """Stop an inference for which something came in two versions, or of two senders."""
        found.tampered = True
        self.give_up(held.id, found.id, 'values came in two versions')

    def _inference(self, held: _Held, chunk: Chunk) -> _Inference:
        """Return the inference of a chunk; its first chunk begins it."""
        with self._opening:
            found = held.open.get(chunk.inference)
            if found is None and not held.programs.asks and chunk.inference not in held.ended:
                return self._open(held, chunk.inference, chunk.schedule, chunk.stamp, {}, None)
        if found is None or found.stopped or found.route != chunk.schedule:
            raise MalformedFrameError(f'inference {chunk.inference} is over', 'stale')
        return found

    def _open(self, held: _Held, inference: int, number: int, stamp: Stamp,
              inputs: Mapping[int, torch.Tensor], finished: Finished | None) -> _Inference:
        if len(held.open) >= MAX_OPEN:
            oldest = min(held.open)
            self.give_up(held.id, oldest, f'{MAX_OPEN} newer ones came')
        route = held.programs.routes[number]
        mailbox = Mailbox(_endless, self.executor.wake)
        arrivals = Arrivals(mailbox, held.reassembler, self.device, route.names, self.received)
        run = ProgramRun(inference, route.program, mailbox,
                         partial(self._send, held.id, route, inference, number, stamp), inputs,
                         partial(self._done, held, finished), self.device)
        opened = held.open[inference] = _Inference(inference, number, arrivals, run)
        self.executor.start(run)
        return opened

    def _send(self, id_: PlanId, route: Route, inference: int, number: int, stamp: Stamp,
              index: int, tensor: torch.Tensor) -> None:
        transfer = route.schedule.transfers[index]
        if any(self.channel.doubted(other.source) for other in route.schedule.transfers
               if other.target == self.device):
            raise TamperedError('two processes speak as a device that sent values')
        for chunk in cut_into_chunks(
                tensor, session=id_.term, epoch=id_.epoch, inference=inference, schedule=number,
                transfer=index, value=transfer.value, region=transfer.region,
                chunk_bytes=self.channel.chunk_bytes(transfer.target), stamp=stamp):
            self.sent.count(chunk)
            self.channel.send(transfer.target, chunk, route.urgency(inference, index))

    def _done(self, held: _Held, finished: Finished | None, run: ProgramRun,
              outputs: Outputs | None, error: Exception | None) -> None:
        ended = held.open.pop(run.inference)
        held.ended.append(run.inference)
        held.reassembler.drop(run.inference)
        if ended.tampered:
            outputs, error = None, TamperedError(
                f'values came in two versions to {self.device}: somebody speaks as another device')
        self.finished += error is None
        events = (*(run.execution.recorder.events if run.execution else ()),
                  *ended.arrivals.events)
        if finished:
            finished(run, outputs, error, events)
        elif isinstance(error, TamperedError) or (
                error and not isinstance(error, InferenceAbandonedError)):
            self._report_failure(held, run.inference, error)

    def _report_failure(self, held: _Held, inference: int, error: Exception) -> None:
        reason = f'{type(error).__name__}: {error}'
        if self._failures.count(type(error).__name__, time.monotonic()):
            self.log(f'inference {inference} failed: {quoted(reason)}')
        self.channel.send(held.programs.plan.source, Control(
            ControlKind.FAILED, held.id.term, held.id.epoch, inference,
            {'reason': quoted(reason), 'tampered': isinstance(error, TamperedError)}))


def _route(held: _Held, chunk: Chunk) -> Route | None:
    """Return the route that a chunk names, if that has such a transfer to this device."""
    routes = held.programs.routes
    route = routes[chunk.schedule] if chunk.schedule < len(routes) else None
    known = route is not None and chunk.transfer < len(route.schedule.transfers)
    return route if known and route and route.expected[chunk.transfer] else None


def _endless(waited: float) -> str | None:
    return None
