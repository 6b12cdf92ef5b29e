# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""What a device holds of a plan of stages: a program for each route, and the weights they read."""
from __future__ import annotations

from dataclasses import dataclass, replace

from intradp_ros.runtime.models.model import SharedModel
from intradp_ros.runtime.transport.sending import describe_transfers, expected_transfer
from intradp_ros.schedule.program import compile_program, Program
from intradp_ros.schedule.schedule import Schedule
from intradp_ros.schedule.stage_lowering import lower_stages
from intradp_ros.schedule.stage_plan import PlanError, StagePlan
from intradp_ros.split.local_operator import Parameters
from intradp_ros.wire.chunking import ExpectedTransfer


@dataclass(frozen=True)
class Route:
    """
    A route's schedule, the device's program for it, and the names of the transfers.

    `leads` says how many inferences each transfer is ahead of its turn; None: all take turns.
    """

    schedule: Schedule
    program: Program
    names: tuple[str, ...]
    expected: tuple[ExpectedTransfer | None, ...]
    leads: tuple[float, ...] | None = None

    def urgency(self, inference: int, transfer: int) -> float:
        """Return the number by which chunks of a transfer leave, the smallest first."""
        return 0.0 if self.leads is None else inference - self.leads[transfer]

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

    :raises PlanError: if the plan is another model's, or does not fit the model.
    """
    if plan.digest != model.digest:
        raise PlanError(f'the plan is for model {plan.digest[:12]}, not for {model.digest[:12]}')
    needed = _weights(model, weights_read(model, plan, device))
    routes = tuple(_route(model, schedule, device, needed, device == plan.source)
                   for schedule in lower_stages(model.split, plan))
    return StagePrograms(plan, device, _ordered(routes, plan),
                         sum(t.nbytes for t in needed.values()))


def reordered(model: SharedModel, programs: StagePrograms, plan: StagePlan,
              ) -> StagePrograms | None:
    """
    Return the programs of a plan that differs in the order of transfers only, else None.

    :raises PlanError: if the order is none of this plan's transfers.
    """
    if replace(programs.plan, order=plan.order) != plan:
        return None
    lower_stages(model.split, plan)
    return replace(programs, plan=plan, routes=_ordered(programs.routes, plan))


def _ordered(routes: tuple[Route, ...], plan: StagePlan) -> tuple[Route, ...]:
    leads = plan.leads
    return tuple(replace(route, leads=None if plan.order is None else tuple(
        leads.get((t.value, t.source, t.target), 0.0) for t in route.schedule.transfers))
        for route in routes)


def weights_read(model: SharedModel, plan: StagePlan, device: str) -> frozenset[str]:
    """
    Return the names of the weights that a device's stages read.

    :raises PlanError: if the plan does not fit the model.
    """
    plan.check(model.split.graph, (plan.source, *plan.devices))
    operators = model.split.graph.operators
    return frozenset(
        name for stage in plan.stages if any(m.device == device for m in stage.members)
        for index in stage.operators for name in operators[index].parameters)


def _weights(model: SharedModel, names: frozenset[str]) -> Parameters:
    found = {name: model.parameters[name] for name in sorted(names)}
    if missing := [name for name, tensor in found.items() if tensor.is_meta]:
        raise PlanError(f'the weights {", ".join(missing[:3])} are not there')
    return found


def _route(model: SharedModel, schedule: Schedule, device: str, parameters: Parameters,
           delivers: bool) -> Route:
    if device not in schedule.programs:
        raise PlanError(f'the plan has no part for device {device!r}')
    program = compile_program(model.split, schedule, device, parameters, delivers=delivers)
    return Route(schedule, program, describe_transfers(model.split, schedule),
                 tuple(expected_transfer(model.split, schedule, index, device)
                       for index in range(len(schedule.transfers))))
