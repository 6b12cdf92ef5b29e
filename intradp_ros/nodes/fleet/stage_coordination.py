# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""Stages in a coordinator node: what their planner serves to operators."""
from __future__ import annotations

from collections.abc import Mapping
import json
import math
import time
from typing import Any

from intradp_ros.msg import FleetQoe
from intradp_ros.nodes.common.call_seals import CallSeals, serve, sros2_enforces
from intradp_ros.nodes.common.key_parameter import KEY_FILE, open_key
from intradp_ros.nodes.common.lifecycle import ManagedNode, RELIABLE
from intradp_ros.planning.quality import parse_quality
from intradp_ros.runtime.member.fleet_coordinator import FleetCoordinator
from intradp_ros.srv import PlanModel
from intradp_ros.systems.fleet.pipeline_planner import PipelinePlanner

#: Least seconds between two plans that strangers ask for; at least as long as the last one took.
PAUSE = 1.0


class StageCoordination(PipelinePlanner):
    """
    Plans stages; with a target it publishes `~/qoe` and serves `~/plan_model`.

    :raises ValueError: if a parameter or a file that it names makes no sense.
    """

    def __init__(self, node: ManagedNode, given: Mapping[str, Any]) -> None:
        super().__init__(given)
        self._node = node
        self._coordinator: FleetCoordinator | None = None
        if self.live:
            self._free = -math.inf
            self._seals = CallSeals(
                open_key(given[KEY_FILE.name], lambda text: None), node.refuse,
                given['plan_service'] == 'open' or sros2_enforces())
            self._qoe = node.publish_on(FleetQoe, '~/qoe', RELIABLE)
            service = serve(node, PlanModel, '~/plan_model', self._seals, self._plan_model,
                            lambda reason: PlanModel.Response(text=reason),
                            free=lambda request: request.what == PlanModel.Request.TELL)
            node.until_cleanup.callback(node.destroy_service, service)

    def start(self, coordinator: FleetCoordinator) -> None:
        """Work with a coordinator from now on."""
        self._coordinator = coordinator
        if self.live:
            self._node.call_every(1.0, self._report_qoe, self._node.until_deactivated)

    def status(self) -> Mapping[str, Any]:
        """Return what the media give, for diagnostics."""
        live = self.live
        return {f'medium {name}': text for name, text in live.media(time.monotonic()).items()} \
            if live else {}

    def _plan_model(self, request: PlanModel.Request) -> PlanModel.Response:
        """Do what an operator says about the plan."""
        live, now, response = self.live, time.monotonic(), PlanModel.Response()
        if live is None:
            return response
        quality = parse_quality(request.qoe) if request.qoe else None
        if request.what == PlanModel.Request.HOLD:
            live.hold()
            plan, response.text = live.look(now), live.text(now)
        elif request.what == PlanModel.Request.TELL:
            stranger = self._seals.closed and not len(request.mac)
            if stranger and now < self._free:
                raise ValueError('a plan was computed just now for somebody without the key: ask '
                                 f'again in {self._free - now:.1f} s')
            response.text, plan = live.preview(quality, request.without, now)
            if stranger:
                end = time.monotonic()
                self._free = end + max(PAUSE, end - now)
        else:
            plan = live.adapt(quality, request.without, now)
            response.text = live.text(now)
            if plan and self._coordinator:
                self._coordinator.propose(plan)
        response.ok, response.plan = plan is not None, json.dumps(plan.to_json()) if plan else ''
        return response

    def _report_qoe(self) -> None:
        live, coordinator = self.live, self._coordinator
        if live is None or coordinator is None or not coordinator.leads:
            return
        seen, plan = live.statistics, live.predicted
        message = FleetQoe(
            latency_target=seen.quality.latency, frames=seen.frames, missed=seen.missed,
            missed_share=seen.missed_share, latency=seen.latency, joules=seen.joules,
            latency_expected=plan.latency if plan else math.nan, switches=seen.switches)
        message.header.stamp = self._node.get_clock().now().to_msg()
        self._qoe.publish(message)
