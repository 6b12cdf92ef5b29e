# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""A device's part in pipelines of stages: its stage worker, and its client where it asks."""
from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
import threading
from typing import Any, cast

from intradp_ros.cluster.plan_id import NO_PLAN, PlanId
from intradp_ros.runtime.member.fleet_control import plan_id, plan_ids
from intradp_ros.runtime.member.role import Host, Lacking, Plan, Role
from intradp_ros.runtime.models.model import SharedModel
from intradp_ros.runtime.pipeline.fetched_models import FetchedModels
from intradp_ros.runtime.pipeline.fleet_patience import FleetPatience
from intradp_ros.runtime.pipeline.fleet_result import FleetResult
from intradp_ros.runtime.pipeline.pipeline_client import PipelineClient
from intradp_ros.runtime.pipeline.stage_worker import StageWorker
from intradp_ros.runtime.weights.state import State
from intradp_ros.schedule.stage_plan import FORMAT, PlanError, StagePlan
from intradp_ros.split.kernel_device import HOST, KernelDevice
from intradp_ros.wire.frames import Control, ControlKind, Frame
from intradp_ros.wire.sanitise import quoted


class StageRole(Role):
    """
    Runs the stages of a device; `models` is its catalogue by digest.

    What is fetched runs on `device`.  `client` is set where it also asks.  Plans whose weights
    need more than `memory` bytes here are refused (0: no limit).
    """

    format = FORMAT  # noqa: A003

    def __init__(self, host: Host, models: Mapping[str, SharedModel],
                 device: KernelDevice = HOST, memory: int = 0) -> None:
        self.state, self._memory = State(), memory
        self.worker = StageWorker(host.channel, models, host.log)
        self.client: PipelineClient | None = None
        self._host = host
        self._fetched = FetchedModels(host.name, host.blobs, device)
        self._used = NO_PLAN
        self._lock = threading.Lock()

    def ask(self, model: SharedModel, answered: Callable[[FleetResult], None], *,
            inflight: int = 0, waiting: int = 64, patience: FleetPatience = FleetPatience(),
            ) -> PipelineClient:
        """Let this device ask for inferences of a model; as for `PipelineClient`."""
        self.client = PipelineClient(
            self._host.channel, self.worker, model, answered, self._host.release,
            inflight=inflight, waiting=waiting, patience=patience)
        if self._used != NO_PLAN and self.worker.programs(self._used).asks:
            self.client.use(self._used)
        return self.client

    def parse(self, data: Any) -> StagePlan:
        """Return the plan that plain data describe; PlanError if they describe none."""
        return StagePlan.from_json(data)

    def lacking(self, plan: Plan) -> Lacking:
        """Return the blobs that the stages here read and that are not here."""
        plan = cast(StagePlan, plan)
        return Lacking(model=plan.digest) if plan.digest in self.worker.models \
            else self._fetched.lacking(plan)

    def load(self, id: PlanId, plan: Plan) -> None:  # noqa: A002
        """Compile the stages of this device; PlanError if their weights do not fit."""
        plan = cast(StagePlan, plan)
        model = self.worker.models.get(plan.digest) or self._fetched.model(plan)
        if model is None:
            raise PlanError('weights were evicted to make room for others: is the store too '
                            'small (store_mb)?')
        programs = self.worker.compile(plan, model)
        if 0 < self._memory < programs.parameter_bytes:
            raise PlanError(
                f'{self._host.name} would hold {programs.parameter_bytes / 1e6:.4g} MB of '
                f'weights, {self._memory / 1e6:.4g} MB are allowed (memory_mb): give it fewer '
                'operators')
        with self._lock:
            self.worker.hold(id, programs)

    def use(self, id: PlanId, boundary: int) -> None:  # noqa: A002
        """Let inferences from a boundary on go by a plan."""
        self._used = id
        programs = self.worker.programs(id)
        self._host.log(
            f'plan {id.term:#x}.{id.epoch} in use: {len(programs.plan.stages)} stages on '
            f'{", ".join(programs.plan.devices)}; {programs.parameter_bytes} bytes of '
            'weights are read here')
        if programs.asks and self.client:
            self.client.use(id, boundary)

    def keep(self, ids: Collection[PlanId]) -> None:
        """Forget all plans but these, with what is in flight of them."""
        if self.client:
            self.client.keep(ids)
        with self._lock:  # a plan may be loaded at this moment
            self.worker.keep(ids)

    def handle(self, peer: str, frame: Frame) -> None:
        """Take a chunk of a stage, or what devices say about inferences."""
        kind = frame.kind if isinstance(frame, Control) else None
        if kind is ControlKind.PING:
            self._drain(peer, plan_id(frame.body.get('oldest')))  # type: ignore[union-attr]
        elif kind is ControlKind.PONG and self.client and isinstance(frame, Control):
            self.client.heard(peer, plan_ids(frame.body.get('held')))
        elif kind is ControlKind.FAILED and self.client and isinstance(frame, Control):
            self.client.failed(peer, frame.inference, quoted(frame.body.get('reason')),
                               frame.body.get('tampered') is True)
        else:
            self.worker.handle(peer, frame)

    def heard(self, peer: str) -> None:
        """Learn that a device is there."""
        if self.client:
            self.client.heard(peer)

    def busy(self) -> float:
        """Return the seconds of computing so far."""
        return self.worker.executor.busy

    def latencies(self) -> tuple[float, ...]:
        """Return the latencies of new answers."""
        return self.client.new_latencies() if self.client else ()

    def close(self) -> None:
        """Stop all inferences."""
        if self.client:
            self.client.close()
        self.worker.close()

    def _drain(self, peer: str, oldest: PlanId) -> None:
        """Let go of former plans when their asker says that nothing of them is in flight."""
        if self._used in self.worker.held and peer == self.worker.programs(self._used).plan.source:
            self._host.release(oldest)
