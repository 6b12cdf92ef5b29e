# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""
Stages in a coordinator node: who runs which operators, by rule, by file or by a target.

Stages without a cut of their own are cut in proportion to the speed that the
devices declare, by the operators' arithmetic.  With a target (`qoe`) it plans
by itself and goes on adapting, publishes `~/qoe`, and serves `~/plan_model`.
"""
from __future__ import annotations

from collections.abc import Mapping
import json
import math
from pathlib import Path
import time
from typing import Any, cast

from intradp_ros.cluster.fleet_file import Fleet, read_fleet
from intradp_ros.cluster.fleet_messages import Heartbeat
from intradp_ros.msg import FleetQoe
from intradp_ros.nodes.key_parameter import KEY_FILE, open_key
from intradp_ros.nodes.lifecycle import ManagedNode, RELIABLE
from intradp_ros.nodes.operator_check import OperatorCheck, sros2_enforces
from intradp_ros.planning.captured_model import captured_model
from intradp_ros.planning.chains import in_chain_order
from intradp_ros.planning.coarsening import coarsen
from intradp_ros.planning.fleet_costs import FleetCosts
from intradp_ros.planning.quality import parse_quality
from intradp_ros.profiling.profile import Profile
from intradp_ros.runtime.catalogue import ModelSpec
from intradp_ros.runtime.member.fleet_coordinator import FleetCoordinator
from intradp_ros.runtime.member.planner import Planner, Proposal
from intradp_ros.runtime.member.role import Plan
from intradp_ros.runtime.model import SharedModel
from intradp_ros.schedule.stage_cuts import (
    operator_weights,
    parse_stages,
    plan_of_cuts,
    plan_without,
    StageCut,
    without,
)
from intradp_ros.schedule.stage_plan import FORMAT, PlanError, StagePlan
from intradp_ros.srv import PlanModel
from intradp_ros.systems.fleet.live_planner import LivePlanner
from intradp_ros.wire.quoting import quoted


class StagePlanning(Planner):
    """
    Plans the stages of one model.

    Raises
    ------
    ValueError
        If a parameter or a file that it names makes no sense.

    """

    format = FORMAT  # noqa: A003

    def __init__(self, node: ManagedNode, given: Mapping[str, Any]) -> None:
        self._node, self._source = node, given['source']
        self._coordinator: FleetCoordinator | None = None
        self._speeds: dict[str, float] = {}
        self._cuts: tuple[StageCut, ...] = () if given['plan'] or given['qoe'] \
            else parse_stages(given['stages'])
        self._given = read_plan(given['plan']) if given['plan'] else None
        model = ModelSpec.parse(given['model']).load()
        self._digest = model.digest
        self._costs = operator_weights(model.split.graph)
        self._live = live_planner(model, given) if given['qoe'] else None
        if self._live:
            self._operators = OperatorCheck(
                open_key(given[KEY_FILE.name], lambda text: None),
                given['plan_service'] == 'open' or sros2_enforces(), node.warn)
            self._qoe = node.publish_on(FleetQoe, '~/qoe', RELIABLE)
            service = node.create_service(PlanModel, '~/plan_model', self._plan_model)
            node.until_cleanup.callback(node.destroy_service, service)

    def start(self, coordinator: FleetCoordinator) -> None:
        """Work with a coordinator from now on."""
        self._coordinator = coordinator
        if self._live:
            self._node.call_every(1.0, self._tell_qoe, self._node.until_deactivated)

    def heard(self, beat: Heartbeat, now: float) -> None:
        """Take what a device declares and measured."""
        if beat.speed:
            self._speeds[beat.device] = beat.speed
        if self._live:
            self._live.heard(beat, now)

    def plan(self, alive: frozenset[str], now: float) -> Proposal | None:
        """Return the plan for the devices that are there."""
        found = self._live.plan(alive, now) if self._live else self._by_rule(alive)
        return Proposal(found) if found else None

    def look(self, now: float) -> Proposal | None:
        """Return the plan that should be in use now."""
        found = self._live.look(now) if self._live else None
        return Proposal(found) if found else None

    def text(self, plan: Plan) -> str:
        """Return the plan in use for people."""
        if self._live:
            return self._live.text(time.monotonic())
        return '\n'.join(
            f'{number}. {", ".join(m.device for m in stage.members)}: operators '
            f'{stage.operators[0]} to {stage.operators[-1]}'
            for number, stage in enumerate(cast(StagePlan, plan).stages, 1))

    def _by_rule(self, alive: frozenset[str]) -> StagePlan | None:
        source = self._given.source if self._given else self._source
        if source not in alive:
            return None
        if self._given:
            return plan_without(self._given, alive)
        speeds = {name: self._speeds.get(name, 1.0) for name in alive}
        return plan_of_cuts(self._digest, source, without(self._cuts, alive, source), self._costs,
                            speeds)

    def _plan_model(self, request: PlanModel.Request, response: PlanModel.Response,
                    ) -> PlanModel.Response:
        """Do what an operator says about the plan."""
        live, now = self._live, time.monotonic()
        if live is None:
            return response
        try:
            self._operators.check(request, now)
            quality = parse_quality(request.qoe) if request.qoe else None
            if request.what == PlanModel.Request.HOLD:
                live.hold()
                plan, response.text = live.look(now), live.text(now)
            elif request.what == PlanModel.Request.TELL:
                response.text, plan = live.tell(quality, request.without, now)
            else:
                plan = live.adapt(quality, request.without, now)
                response.text = live.text(now)
                if plan and self._coordinator:
                    self._coordinator.propose(plan)
        except ValueError as error:
            response.text = quoted(error)
            response.challenge = self._operators.challenge(now)
            return response
        response.challenge = self._operators.challenge(now)
        response.ok, response.plan = plan is not None, json.dumps(plan.to_json()) if plan else ''
        return response

    def _tell_qoe(self) -> None:
        live, coordinator = self._live, self._coordinator
        if live is None or coordinator is None or not coordinator.leads:
            return
        seen, plan = live.statistics, live.predicted
        message = FleetQoe(
            latency_target=seen.quality.latency, frames=seen.frames, missed=seen.missed,
            missed_share=seen.missed_share, latency=seen.latency, joules=seen.joules,
            latency_expected=plan.latency if plan else math.nan, switches=seen.switches)
        message.header.stamp = self._node.get_clock().now().to_msg()
        self._qoe.publish(message)


def live_planner(model: SharedModel, parameters: Mapping[str, Any]) -> LivePlanner:
    """
    Return what plans for the fleet and the target that parameters name.

    Raises
    ------
    ValueError
        If a file is missing, or says something else.

    """
    for name in ('fleet_file', 'profile'):
        if not parameters[name]:
            raise ValueError(f'parameter {name} is empty: qoe plans with it')
    fleet: Fleet = read_fleet(Path(parameters['fleet_file']))
    profile = Profile.from_json(Path(parameters['profile']).read_text())
    own = {name: Profile.from_json(path.read_text()) for name, path in fleet.profiles.items()}
    planned = coarsen(in_chain_order(captured_model(model.split, profile, own)))
    return LivePlanner(FleetCosts(planned, fleet.topology, parameters['source'],
                                  parse_quality(parameters['qoe'])))


def read_plan(path: str) -> StagePlan:
    """Read a plan from a file; PlanError if it is none."""
    try:
        return StagePlan.from_json(json.loads(Path(path).read_text()))
    except json.JSONDecodeError as error:
        raise PlanError(f'{path} is no JSON: {error}') from error
