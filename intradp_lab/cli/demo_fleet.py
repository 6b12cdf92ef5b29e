# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""
`intradp demo-fleet`: one network on a video over four devices that share the air.

Plans of several planners are made side by side and each is run; then the air
is halved.  Real inferences are compared with the unsplit model's, times are
those of emulated devices.  At last the plan runs as real processes over DDS,
of which one is killed and comes back.  A plan that cannot be run is a row that says why.
"""
from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import torch
from torch import nn

from intradp_lab.cli.claimed_folder import claim_folder
from intradp_lab.cli.fleet_report import (
    FailedRun,
    fleet_report,
    Measured,
    PlanRun,
    said,
    show_report,
    well,
)
from intradp_lab.emulation.network import NetworkError
from intradp_lab.emulation.processes import ChildError
from intradp_lab.fleet.fleet_scene import AIR, fleet_scene, FleetScene, SIZE, video_inputs
from intradp_lab.fleet.killed_device import kill_and_return, KilledDevice
from intradp_lab.fleet.streamed_plan import FleetNotReady, Frame, play, unsplit_results
from intradp_lab.zoo.mobilenet_v2 import mobilenet_v2
from intradp_lab.zoo.wheel_files import MissingWheelError
from intradp_ros.cli.arguments import number, whole
from intradp_ros.cli.command_errors import CommandError
from intradp_ros.cli.output import milliseconds, Output, output
from intradp_ros.cli.output_paths import result_folder
from intradp_ros.cli.profile_arguments import own_profile
from intradp_ros.cli.subject import captured
from intradp_ros.profiling.machine import prepare_process
from intradp_ros.report.fleet_plan_plot import draw_schedule, task_spans
from intradp_ros.report.result_tables import write_json
from intradp_ros.report.view.standing_page import write_page
from intradp_ros.systems.fleet.adapter import Act, begin, observe, Observed
from intradp_ros.systems.fleet.partitioner import reference_scale
from intradp_ros.systems.fleet.planner import (
    FleetPlan,
    FleetPlans,
    judge,
    OURS,
    plan_fleet,
    stage_plan,
)

RESULTS = ('gantt.png', 'nodes', 'page.html', 'report.json')
#: Other planners whose plans are run.
RIVALS = ('one device', 'equal split', 'by memory (exo)', 'Asteroid', 'contention-free')
#: What is left of the air in a burst of another one.
LEFT = 0.5


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the demo's options."""
    parser.description = (
        'Divide MobileNetV2 with its real weights among four devices behind one access point, for '
        'a camera of 8 frames a second: plans of several planners side by side, each run and '
        'compared with its prediction; every result is compared with the unsplit model. Writes '
        'report.json, gantt.png and page.html.')
    parser.add_argument('--air', type=number(1.0, 1000.0), default=20.0, metavar='MBPS',
                        help='rate that all stations share (default %(default)s)')
    parser.add_argument('--frames', type=whole(2, 10_000), default=48, metavar='N',
                        help='frames of the camera for each plan (default %(default)s)')
    parser.add_argument('--out', type=result_folder, default='out/demo-fleet',
                        help='folder to write to')


def run(args: argparse.Namespace) -> int:
    """Run the demo; return the exit code."""
    with output(False) as out:
        try:
            claim_folder(args.out, 'demo-fleet', RESULTS)
            prepare_process(1)
            measured = _measure(args, out)
        except (ValueError, MissingWheelError) as error:
            raise CommandError(str(error)) from error
        report = fleet_report(measured)
        write_json(args.out / 'report.json', report | {'said': said(report)})
        write_page(args.out)
        show_report(report, out)
        out.show(f'Wrote {args.out}/report.json, gantt.png and page.html')
    return 0 if well(report) else 1


@dataclass(frozen=True)
class PlanRunner:
    """Runs plans of a scene on the same frames."""

    scene: FleetScene
    inputs: Sequence[Frame]
    wanted: Sequence[Sequence[torch.Tensor]]
    out: Output

    def run(self, plan: FleetPlan, name: str) -> PlanRun | FailedRun:
        """Run a plan; if it cannot be, say why."""
        stages = stage_plan(self.scene.costs, plan.placement, plan.order)
        try:
            with self.out.status(f'running the plan: {name}'):
                played = play(self.scene, stages, self.inputs, self.wanted)
        except FleetNotReady as error:
            return FailedRun(plan, stages, str(error))
        rates = {m.name: m.bytes_per_second for m in self.scene.topology.media}
        return PlanRun(plan, stages, played, self.scene.bound(plan.placement), {
            **plan.busy, **{name: nbytes / rates[name] for name, nbytes in plan.carried.items()}})


def _measure(args: argparse.Namespace, out: Output) -> Measured:
    inputs, model = video_inputs(args.frames), mobilenet_v2()
    scene = _scene(model, inputs[0], args.air, out)
    with out.status('planning'):
        plans = plan_fleet(scene.costs, compare=True)
    order = plans.best.order
    draw_schedule(order.tasks.graph, order.played, scene.topology, args.out / 'gantt.png',
                  f'Eight frames of the camera by the plan "{OURS}": at most '
                  f'{milliseconds(plans.best.latency)} ms each (modelled)')
    player = PlanRunner(scene, inputs, unsplit_results(model, inputs), out)
    systems, burst = _systems(player, plans), _burst(player, plans)
    with out.status('killing a device of real nodes'):
        try:
            killed: KilledDevice | str | None = kill_and_return(
                scene, systems[OURS].stages, args.out / 'nodes')
        except (ChildError, NetworkError) as error:
            killed = str(error)
    return Measured(scene, systems, burst, killed,
                    task_spans(order.tasks.graph, order.played, scene.topology))


def _scene(model: nn.Module, example: Frame, mbit: float, out: Output) -> FleetScene:
    subject = captured(f'MobileNetV2 {SIZE} x {SIZE}', model, example, None)
    return fleet_scene(subject.shared, own_profile(subject, out), mbit)


def _systems(player: PlanRunner, plans: FleetPlans) -> Mapping[str, PlanRun | FailedRun]:
    """Run our plan and those of others that fit; plans that are alike are run once."""
    found: dict[str, FleetPlan] = {OURS: plans.best}
    found |= {name: plan for name in RIVALS if (plan := plans.others[name]) is not None}
    runs: dict[tuple[int, ...], PlanRun | FailedRun] = {}
    for name, plan in found.items():
        if plan.placement not in runs:
            runs[plan.placement] = player.run(plan, name)
    return {name: replace(runs[plan.placement], plan=plan) for name, plan in found.items()}


def _burst(player: PlanRunner, plans: FleetPlans) -> Mapping[str, PlanRun | FailedRun]:
    """Run our plan while another one takes half the air, and what the adapter then takes."""
    act, adapted = _adapted(player.scene, plans)
    crowded = replace(player, scene=player.scene.with_air(LEFT))
    costs = crowded.scene.costs
    kept = judge(costs, reference_scale(costs), OURS, plans.best.placement)
    runs = {'kept': kept} | ({act: adapted} if adapted else {})
    return {name: crowded.run(plan, f'half the air, {name}') for name, plan in runs.items()}


def _adapted(scene: FleetScene, plans: FleetPlans) -> tuple[str, FleetPlan | None]:
    """Return what the adapter has done two seconds after the air was halved."""
    state, acts = begin(scene.costs, 0.0, lambda costs: plans), []
    rate = LEFT * scene.topology.medium(AIR).bytes_per_second
    for now in (1.0, 2.0):
        state, decision = observe(state, scene.costs, Observed({AIR: rate}), now)
        acts.append(decision.act)
    return next((act.value for act in reversed(acts) if act is not Act.STAY), Act.STAY.value), \
        state.plan
