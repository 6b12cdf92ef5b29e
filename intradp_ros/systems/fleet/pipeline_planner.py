# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""
The planner of stages in a coordinator: by rule, by a plan that is given, or by a target.

Stages without a cut of their own are cut in proportion to the speed that the
devices declare, by the operators' arithmetic.  With a target it goes on adapting.
"""
from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
import time
from typing import Any, cast

from intradp_ros.cluster.fleet_file import Fleet, read_fleet
from intradp_ros.cluster.fleet_messages import Heartbeat
from intradp_ros.cluster.plan_id import PlanError
from intradp_ros.core.json_text import read_json, read_text
from intradp_ros.planning.captured_model import captured_model
from intradp_ros.planning.chains import in_chain_order
from intradp_ros.planning.coarsening import coarsen
from intradp_ros.planning.fleet_costs import FleetCosts
from intradp_ros.planning.quality import parse_quality
from intradp_ros.profiling.profile import Profile
from intradp_ros.runtime.member.planner import Planner, Proposal
from intradp_ros.runtime.member.role import Plan
from intradp_ros.runtime.models.catalogue import ModelSpec
from intradp_ros.runtime.models.model import SharedModel
from intradp_ros.schedule.stage_cuts import (
    operator_weights,
    parse_stages,
    plan_of_cuts,
    plan_without,
    StageCut,
    without,
)
from intradp_ros.schedule.stage_plan import FORMAT, StagePlan
from intradp_ros.systems.fleet.finer_nodes import of_few_devices
from intradp_ros.systems.fleet.live_planner import LivePlanner


class PipelinePlanner(Planner):
    """
    Plans the stages of one model; `live` is what adapts, where there is a target.

    It is made of a coordinator's parameters: `model`, `source`, and `stages`, `plan` (a
    file) or `qoe` with `fleet_file` and `profile`.

    :raises ValueError: if a parameter or a file that it names makes no sense.
    """

    format = FORMAT  # noqa: A003

    def __init__(self, given: Mapping[str, Any]) -> None:
        self._speeds: dict[str, float] = {}
        self._cuts: tuple[StageCut, ...] = () if given['plan'] or given['qoe'] \
            else parse_stages(given['stages'])
        self._given = read_plan(given['plan']) if given['plan'] else None
        self._source = self._given.source if self._given else given['source']
        model = ModelSpec.parse(given['model']).load()
        self._digest = model.digest
        self._costs = operator_weights(model.split.graph)
        self.live = live_planner(model, given) if given['qoe'] else None

    def heard(self, beat: Heartbeat, now: float) -> None:
        """Take what a device declares and measured."""
        if beat.speed:
            self._speeds[beat.device] = beat.speed
        if self.live:
            self.live.heard(beat, now)

    def forget(self, device: str) -> None:
        """Forget what a device declared."""
        self._speeds.pop(device, None)

    def plan(self, alive: frozenset[str], now: float) -> Proposal | None:
        """Return the plan for the devices that are there."""
        found = self.live.plan(alive, now) if self.live else self._by_rule(alive)
        self.why = self.live.why if self.live else f'the source {self._source} is not there'
        return Proposal(found) if found else None

    def look(self, now: float) -> Proposal | None:
        """Return the plan that should be in use now."""
        found = self.live.look(now) if self.live else None
        return Proposal(found) if found else None

    def text(self, plan: Plan) -> str:
        """Return the plan in use for people."""
        if self.live:
            return self.live.text(time.monotonic())
        return '\n'.join(
            f'{number}. {", ".join(m.device for m in stage.members)}: operators '
            f'{stage.operators[0]} to {stage.operators[-1]}'
            for number, stage in enumerate(cast(StagePlan, plan).stages, 1))

    def _by_rule(self, alive: frozenset[str]) -> StagePlan | None:
        source = self._source
        if source not in alive:
            return None
        if self._given:
            return plan_without(self._given, alive)
        speeds = {name: self._speeds.get(name, 1.0) for name in alive}
        return plan_of_cuts(self._digest, source, without(self._cuts, alive, source), self._costs,
                            speeds)


def live_planner(model: SharedModel, parameters: Mapping[str, Any]) -> LivePlanner:
    """
    Return what plans for the fleet and the target that parameters name.

    :raises ValueError: if a file is missing, or says something else.
    """
    for name in ('fleet_file', 'profile'):
        if not parameters[name]:
            raise ValueError(f'parameter {name} is empty: qoe plans with it')
    fleet: Fleet = read_fleet(Path(parameters['fleet_file']))
    profile = _read_profile(Path(parameters['profile']))
    own = {name: _read_profile(path) for name, path in fleet.profiles.items()}
    fine = of_few_devices(FleetCosts(
        in_chain_order(captured_model(model.split, profile, own)), fleet.topology,
        parameters['source'], parse_quality(parameters['qoe'])))
    return LivePlanner(replace(fine, model=coarsen(fine.model)), fine=fine)


def read_plan(path: str) -> StagePlan:
    """Read a plan from a file; PlanError if it is none, OSError if there is none."""
    try:
        return StagePlan.from_json(read_json(Path(path)))
    except ValueError as error:
        raise PlanError(f'{path} is not a plan that `intradp fleet plan -o` wrote: {error}'
                        ) from error


def _read_profile(path: Path) -> Profile:
    try:
        return Profile.from_json(read_text(path))
    except ValueError as error:
        raise ValueError(
            f'{path} is not a file that `intradp profile -o` wrote: {error}') from error
