# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""What a device holds of a plan of stages: a program for each route, and the weights they read."""
from __future__ import annotations

from dataclasses import dataclass

from intradp_ros.runtime.model import SharedModel
from intradp_ros.runtime.sending import describe_transfers, expected_transfer
from intradp_ros.schedule.program import compile_program, Program
from intradp_ros.schedule.schedule import Schedule
from intradp_ros.schedule.stage_lowering import lower_stages
from intradp_ros.schedule.stage_plan import PlanError, StagePlan
from intradp_ros.split.local_operator import Parameters
from intradp_ros.wire.chunking import ExpectedTransfer


@dataclass(frozen=True)
class Route:
    """A route's schedule, the device's program for it, and the names of the transfers."""

    schedule: Schedule
    program: Program
    names: tuple[str, ...]
    expected: tuple[ExpectedTransfer | None, ...]

    @property
    def computes(self) -> bool:
        """Whether the route leads through this device."""
        return bool(self.program.instructions)


@dataclass(frozen=True)
class StagePrograms:
    """A plan as one device holds it; `parameter_bytes` are those of the weights that it reads."""

    plan: StagePlan
    device: str
    routes: tuple[Route, ...]
    parameter_bytes: int

    @property
    def asks(self) -> bool:
        """Whether the device is the one that has the inputs and takes the outputs."""
        return self.device == self.plan.source

    def route_of(self, inference: int) -> int:
        """Return the index of the route that an inference (counted from 1) takes."""
        plan = self.plan
        return plan.routes().index(plan.route((inference - 1) % plan.samples))


def compile_stages(model: SharedModel, plan: StagePlan, device: str) -> StagePrograms:
    """
    Compile a device's part of a plan, reading only the weights of its own stages.

    Raises
    ------
    PlanError
        If the plan is another model's, or does not fit the model.

    """
    if plan.digest != model.digest:
        raise PlanError(f'the plan is for model {plan.digest[:12]}, not for {model.digest[:12]}')
    plan.check(model.split.graph, (plan.source, *plan.devices))
    needed = _needed(model, plan, device)
    routes = tuple(_route(model, schedule, device, needed, device == plan.source)
                   for schedule in lower_stages(model.split, plan))
    return StagePrograms(plan, device, routes, sum(t.nbytes for t in needed.values()))


def _needed(model: SharedModel, plan: StagePlan, device: str) -> Parameters:
    operators = model.split.graph.operators
    names = {name for stage in plan.stages if any(m.device == device for m in stage.members)
             for index in stage.operators for name in operators[index].parameters}
    return {name: model.parameters[name] for name in sorted(names)}


def _route(model: SharedModel, schedule: Schedule, device: str, parameters: Parameters,
           delivers: bool) -> Route:
    if device not in schedule.programs:
        raise PlanError(f'the plan has no part for device {device!r}')
    program = compile_program(model.split, schedule, device, parameters, delivers=delivers)
    return Route(schedule, program, describe_transfers(model.split, schedule),
                 tuple(expected_transfer(model.split, schedule, index, device)
                       for index in range(len(schedule.transfers))))
