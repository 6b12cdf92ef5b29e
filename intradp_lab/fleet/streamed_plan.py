# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""A plan that is run in this process: on real inferences, and on emulated devices in time."""
from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
import math
import queue
import statistics
import time

import torch
from torch.utils import _pytree as pytree

from intradp_lab.fleet.device_emulation import emulated_at
from intradp_lab.fleet.fleet_figures import (
    measured_local,
    PipelineFigures,
    predicted,
    usual_inflight,
)
from intradp_lab.fleet.fleet_scene import FleetScene, TARGET
from intradp_lab.fleet.local_fleet import LocalFleet
from intradp_lab.fleet.stage_order import discipline_of
from intradp_ros.cluster.coordinator import CoordinatorTimes
from intradp_ros.cluster.membership import MemberTimes
from intradp_ros.core.patience import Patience
from intradp_ros.runtime.models.model import SharedModel
from intradp_ros.runtime.pipeline.fleet_patience import FleetPatience
from intradp_ros.runtime.pipeline.fleet_result import FleetResult
from intradp_ros.schedule.stage_plan import StagePlan
from intradp_ros.split.checks.verify import output_error

Frame = tuple[torch.Tensor, ...]

#: Frames that are asked for one at a time, and that are asked for as soon as there is room.
ALONE, TOGETHER = 3, 16
#: Seconds (`Patience`) until devices are there, and until the next answer.
TIMEOUT = 60.0
_LOOK = 0.5
#: Seconds: who asks for figures on a busy machine takes no device for dead.
SILENCE = 10.0
#: Seconds after which an emulated frame that nobody answers is given up.
MOST = 600.0


class FleetNotReady(RuntimeError):
    """The devices of a fleet did not come together, or do not answer."""


@dataclass(frozen=True)
class PlayedPlan:
    """
    What a plan came to.

    `predicted` and `measured` are of the same emulated devices; `stream` has
    the seconds of each frame at the camera's rate, infinite for a lost one.
    `difference` is the largest one of real inferences to the unsplit model's,
    infinite beyond rounding.  `lost` counts frames of any kind without an
    answer, `by_asker` those that the fleet did not compute.
    """

    predicted: PipelineFigures
    measured: PipelineFigures
    stream: tuple[float, ...]
    difference: float
    frames: int
    lost: int
    by_asker: int

    @property
    def missed_seconds(self) -> float:
        """Seconds of video whose results came late or not at all."""
        return sum(latency > TARGET.latency for latency in self.stream) / TARGET.rate

    @property
    def usual(self) -> float:
        """Return the median seconds of a frame at the camera's rate."""
        return statistics.median(self.stream)


def unsplit_results(model: torch.nn.Module, inputs: Sequence[Frame]) -> list[list[torch.Tensor]]:
    """Return the tensors among a module's results for each input."""
    with torch.inference_mode():
        return [_tensors(model(*frame)) for frame in inputs]


def play(scene: FleetScene, plan: StagePlan, inputs: Sequence[Frame],
         wanted: Sequence[Sequence[torch.Tensor]], alone: int = ALONE,
         together: int = TOGETHER) -> PlayedPlan:
    """
    Run a plan: real inferences of all inputs, then emulated ones alone, together, and in time.

    :raises FleetNotReady: if the devices did not come together, or an answer did not come.
    """
    inflight = usual_inflight(plan)
    real = real_answers(scene, plan, inputs)
    slow = {d.name: emulated_at(scene.model, scene.profile, d.speed)
            for d in scene.topology.devices}
    with _ready(scene, plan, slow, len(inputs)) as fleet:
        repeated = [inputs[k % len(inputs)] for k in range(alone + together)]
        try:
            measured, first = measured_local(fleet, repeated, alone, inflight, MOST)
        except queue.Empty:
            raise FleetNotReady(f'no answer within {MOST:g} s') from None
        stream = _in_time(fleet, inputs)
    every = [*real, *first, *stream]
    asked = 2 * len(inputs) + len(first)
    lost = asked - sum(answer.outputs is not None for answer in every)
    return PlayedPlan(
        predicted(scene.model.split, plan, scene.seconds, scene.topology, alone, together,
                  inflight, discipline_of(plan)),
        measured, _latencies(stream, len(inputs)), difference(real, wanted), asked, lost,
        sum(not answer.pipelined for answer in every))


def real_answers(scene: FleetScene, plan: StagePlan, inputs: Sequence[Frame]) -> list[FleetResult]:
    """Return the answers of real inferences by a plan; fewer if one does not come."""
    models = dict.fromkeys(scene.topology.names, scene.model)
    with _ready(scene, plan, models, len(inputs)) as fleet:
        for frame in inputs:
            fleet.wait_for_room()
            fleet.client.ask(frame)
        return _answers(fleet, len(inputs))


def difference(answers: Sequence[FleetResult], wanted: Sequence[Sequence[torch.Tensor]]) -> float:
    """Return the largest difference in units of the spread, infinite beyond rounding."""
    errors = [output_error('', given, want)
              for answer, wants in zip(answers, wanted) if answer.outputs is not None
              for given, want in zip(_tensors(answer.outputs), wants, strict=True)]
    return max((e.relative if e.exact else math.inf for e in errors), default=math.inf)


def _in_time(fleet: LocalFleet, inputs: Sequence[Frame]) -> list[FleetResult]:
    """Ask for an inference whenever the camera has a frame."""
    begin = time.monotonic()
    for number, frame in enumerate(inputs):
        time.sleep(max(0.0, begin + number / TARGET.rate - time.monotonic()))
        fleet.client.ask(frame)
    return _answers(fleet, len(inputs))


def _answers(fleet: LocalFleet, count: int) -> list[FleetResult]:
    """Return the next answers; fewer if one does not come."""
    found: list[FleetResult] = []
    patience = Patience(TIMEOUT)
    while len(found) < count and not patience.over:
        with suppress(queue.Empty):
            found += fleet.answers(1, _LOOK)
            patience = Patience(TIMEOUT)
    return found


def _latencies(answers: Sequence[FleetResult], asked: int) -> tuple[float, ...]:
    seen = [a.latency if a.outputs is not None else math.inf for a in answers]
    return (*seen, *[math.inf] * (asked - len(seen)))


def _ready(scene: FleetScene, plan: StagePlan, models: Mapping[str, SharedModel], waiting: int,
           ) -> LocalFleet:
    """Return a fleet that has the plan in use."""
    needed = frozenset((plan.source, *plan.devices))
    fleet = LocalFleet(
        scene.topology, plan.source, models, lambda alive: plan if needed <= alive else None,
        waiting=waiting + 1, patience=FleetPatience(silence=SILENCE),
        times=CoordinatorTimes(MemberTimes(suspect=SILENCE / 2, gone=SILENCE)))
    patience = Patience(TIMEOUT)
    while not patience.over:
        if fleet.wait_ready(_LOOK):
            return fleet
    trouble = fleet.client.unavailable_reason()
    fleet.__exit__(None, None, None)
    raise FleetNotReady(f'the devices did not come together: {trouble}')


def _tensors(results: object) -> list[torch.Tensor]:
    return [leaf for leaf in pytree.tree_leaves(results) if isinstance(leaf, torch.Tensor)]
