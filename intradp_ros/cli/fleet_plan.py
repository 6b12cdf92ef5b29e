# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""``intradp fleet plan``: plans of a network for a fleet and a target, side by side."""
from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
import json
import math
from pathlib import Path
import time
from typing import Any

from intradp_ros.cli.arguments import add_renamed, existing_file, file_of, number, whole
from intradp_ros.cli.books import Grid, make_plan
from intradp_ros.cli.command_errors import CommandError
from intradp_ros.cli.fleet_argument import check_profiles, device_of
from intradp_ros.cli.output import add_json, milliseconds, Output, output, plain, size, table
from intradp_ros.cli.output_paths import result_file, result_picture
from intradp_ros.cli.profile_arguments import own_profile, parsed_profile, read_profile
from intradp_ros.cli.subject import add_model, load_subject, MODEL_HELP, Subject
from intradp_ros.cluster.fleet_file import Fleet, read_fleet
from intradp_ros.cluster.located_yaml import FleetFileError
from intradp_ros.cluster.topology import Topology
from intradp_ros.core.atomic_write import all_or_none, write_atomically
from intradp_ros.planning.captured_model import captured_model
from intradp_ros.planning.chains import in_chain_order
from intradp_ros.planning.coarsening import SMALL
from intradp_ros.planning.fleet_costs import FleetCosts
from intradp_ros.planning.layer_profile import MOST_BYTES, read_layer_profile
from intradp_ros.planning.planning_model import PlanningModel
from intradp_ros.planning.quality import parse_quality, Quality
from intradp_ros.profiling.drift import slowed
from intradp_ros.profiling.profile import Profile
from intradp_ros.report.fleet_plan_plot import draw_schedule
from intradp_ros.report.fleet_plot import draw_fleet
from intradp_ros.schedule.schedule import ROBOT, SERVER
from intradp_ros.systems.fleet.finer_nodes import of_few_devices, plan_in_nodes
from intradp_ros.systems.fleet.partitioner import KEPT, NothingFits
from intradp_ros.systems.fleet.plan_text import plan_data, plan_file
from intradp_ros.systems.fleet.planner import (
    FleetPlan,
    FleetPlans,
    MOST_BATCHES,
    MOST_DEVICES,
    MOST_KEPT,
    MOST_SAMPLES,
)
from intradp_ros.systems.sharing.strategies import SHARED

#: What a layer profile's file ends in; anything else is a network.
LAYERS = '.txt'

DESCRIPTION = f"""\
Divide a network among the devices of a fleet, so that a target is met with the least energy, and
show the plan next to those of other planners, all judged by the same simulator.

Latency, rate and joules are modelled: from a profile measured here or read from a file, the
devices' speeds, and the rates of the fleet file.  The bound is below what any order of transfers
reaches with the same division.

{MODEL_HELP}
  graph.txt                a published layer profile (PipeDream's or DAPPLE's): planned, not run"""

EPILOG = """\
examples:
  intradp fleet plan intradp_lab.zoo.mobilenet_v2:mobilenet_v2 --input 1x3x224x224 \\
      --dtype uint8 --fleet config/fleet.yaml --qoe latency=200ms,energy=min -o plan.json
  intradp fleet plan mymodel:make --input 1x3x480x640 --fleet fleet.yaml --source robot1 \\
      --qoe rate=5Hz --timeline timeline.png --loads loads.png
  intradp fleet plan vgg16/graph.txt --layer-batch 128 --fleet fleet.yaml --json"""
_MBIT = 125e3


@dataclass(frozen=True)
class _Measured:
    """A network with the profiles that it is planned by."""

    subject: Subject
    profile: Profile
    own: Mapping[str, Profile]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command line of the verb."""
    parser.description, parser.epilog = DESCRIPTION, EPILOG
    add_model(parser)
    parser.add_argument('--fleet', type=existing_file, required=True, metavar='FLEET.yaml',
                        help='devices and links of the fleet (see intradp fleet show)')
    parser.add_argument('--source', metavar='DEVICE',
                        help='device with the inputs, which takes the results (default: first)')
    parser.add_argument('--qoe', type=_quality, default=Quality(), metavar='TARGETS',
                        help='targets: latency=200ms,rate=5Hz,energy=min (default: fastest)')
    parser.add_argument('--energy-limit', type=_limit, action='append', default=[],
                        metavar='DEVICE=JOULES', help='energy budget of a device per inference, J')
    parser.add_argument('--profile', type=file_of(parsed_profile), metavar='FILE',
                        help='the profile of a device of speed 1, from `intradp profile -o` '
                             '(default: measured here)')
    parser.add_argument('--layer-batch', type=whole(1, 1 << 20), default=1, metavar='N',
                        help='batch size with which a layer profile was measured (default 1)')
    parser.add_argument('--layer-edges', action='store_true',
                        help="sizes of a layer are those of its edges (DAPPLE's profiles)")
    parser.add_argument('--samples', type=whole(1, MOST_SAMPLES), default=1, metavar='N',
                        help='samples in a micro-batch, divided among replicas (default 1)')
    parser.add_argument('--batches', type=whole(1, MOST_BATCHES), default=1, metavar='N',
                        help='micro-batches in the pipeline at once (default 1)')
    parser.add_argument('--small', type=number(0.0, 1.0), default=SMALL, metavar='SHARE',
                        help='merge neighbouring operators below this share of weights and work '
                             f'(default {SMALL:g})')
    parser.add_argument('--keep', type=whole(1, MOST_KEPT), default=KEPT, metavar='K',
                        help=f'beam width: placements kept for each state (default {KEPT})')
    parser.add_argument('-o', '--output', type=result_file, metavar='FILE',
                        help='write the plan here')
    add_renamed(parser, '--timeline', '--gantt', type=result_picture, metavar='FILE',
                help='draw the schedule: compute and transfers over time')
    parser.add_argument('--loads', type=result_picture, metavar='FILE',
                        help='draw the fleet with the load of each device and link')
    add_json(parser)


def run(args: argparse.Namespace) -> int:
    """Run the verb."""
    with output(args.json) as out:
        try:
            whole, fleet, measured = _costs(args, out)
            fine = of_few_devices(whole)
            if left_out := len(whole.topology.devices) - len(fine.topology.devices):
                out.warn(f'plans are made for at most {MOST_DEVICES} devices: the {left_out} '
                         'with the least speed and memory are left out')
            begun = time.perf_counter()
            with out.status('planning'):
                plan_in_nodes(fine, args.small, kept=args.keep)
            seconds = time.perf_counter() - begun
            with out.status('planning as others do'):
                costs, plans = plan_in_nodes(fine, args.small, kept=args.keep, compare=True)
            shared = _shared(args, costs, measured, out)
        except (FleetFileError, NothingFits, ValueError) as error:
            raise CommandError(str(error)) from None
        _show(costs, plans, seconds, out)
        if shared:
            out.show(_against(plans.best, shared))
        with all_or_none():
            _write(args, costs, fleet, plans.best)
        out.result({'model': costs.model.name, 'nodes': len(costs.model.nodes),
                    'planning_seconds': seconds, 'shared': shared and asdict(shared),
                    'best': plan_data(costs, plans.best),
                    'front': [plan_data(costs, plan) for plan in plans.front],
                    'others': {name: plan and plan_data(costs, plan)
                               for name, plan in plans.others.items()}})
    return 0


def _costs(args: argparse.Namespace, out: Output) -> tuple[FleetCosts, Fleet, _Measured | None]:
    fleet = read_fleet(args.fleet)
    quality = replace(args.qoe, energy=dict(args.energy_limit))
    for name in quality.energy:
        fleet.topology.device(name)
    source = device_of(fleet, '--source', args.source)
    check_profiles(fleet)
    found, measured = _model(args, fleet, out)
    model = in_chain_order(found)
    return FleetCosts(model, fleet.topology, source, quality, args.samples,
                      args.batches), fleet, measured


def _model(args: argparse.Namespace, fleet: Fleet, out: Output,
           ) -> tuple[PlanningModel, _Measured | None]:
    if args.model.endswith(LAYERS):
        with open(args.model, encoding='utf-8', errors='replace') as stream:
            return read_layer_profile(stream.read(MOST_BYTES + 1), Path(args.model).stem,
                                      args.layer_batch, args.layer_edges), None
    subject = load_subject(args, out)
    profile = read_profile(args.profile, subject) if args.profile else own_profile(subject, out)
    own = {name: read_profile(path, subject) for name, path in fleet.profiles.items()}
    return (captured_model(subject.shared.split, profile, own),
            _Measured(subject, profile, own))


def _shared(args: argparse.Namespace, costs: FleetCosts, measured: _Measured | None,
            out: Output) -> SharedSeconds | None:
    """Return what sharing rows takes, where that can serve in place of the plan."""
    if measured is None or costs.samples > 1 or costs.batches > 1:
        return None
    return shared_seconds(measured.subject, measured.profile, measured.own, costs.topology,
                          costs.source, out)


def _against(plan: FleetPlan, shared: SharedSeconds) -> str:
    """Say which of the two is quicker for one inference."""
    says = (f'rows of every layer on both sides (shared, see intradp plan): '
            f'{milliseconds(shared.latency)} ms, the plan {milliseconds(plan.latency)} ms')
    return f'{says}: run these two as robot and server, [bold]shared[/bold]' \
        if shared.latency < plan.latency else f'{says}: the plan is no slower'


def _show(costs: FleetCosts, plans: FleetPlans, seconds: float, out: Output) -> None:
    media = [m.name for m in costs.topology.media if plans.best.carried.get(m.name)]
    shown = table(f'{costs.model.name}: {len(costs.model.nodes)} nodes on '
                  f'{len(costs.topology.devices)} devices, planned in {seconds:.2f} s (modelled)',
                  'planner', 'ms', 'bound', 'per second', 'joules', 'most memory', 'target',
                  *media)
    for name, plan in {plans.best.name: plans.best, **plans.others}.items():
        if plan is None:
            shown.add_row(name, 'fits nowhere')
        else:
            shown.add_row(
                name, milliseconds(plan.latency), milliseconds(plan.bound), f'{plan.rate:.3g}',
                f'{sum(plan.joules.values()):.3g}', size(max(plan.memory.values())),
                'met' if plan.meets else 'missed', *(size(plan.carried[m]) for m in media))
    out.show(shown, _by_device(costs, plans.best), *_by_stage(costs, plans.best))


def _by_device(costs: FleetCosts, plan: FleetPlan) -> Any:
    shown = table('What the plan takes of each device', 'device', 'ms computing', 'joules',
                  'memory', 'of')
    for device in costs.topology.devices:
        shown.add_row(plain(device.name), milliseconds(plan.busy[device.name]),
                      f'{plan.joules[device.name]:.3g}' if device.power else 'unknown',
                      size(plan.memory[device.name]), size(device.memory_bytes))
    return shown


def _by_stage(costs: FleetCosts, plan: FleetPlan) -> Sequence[Any]:
    shown = table('Stages', 'nodes', 'devices and samples')
    for stage in plan_data(costs, plan)['stages']:
        shares = ', '.join(f'{name} {count}' for name, count in stage['samples'].items())
        ends = f'{stage["first"]:.32} … {stage["last"]:.32}'
        shown.add_row(plain(f'{ends} ({stage["nodes"]})'), plain(shares))
    return [shown]


def _write(args: argparse.Namespace, costs: FleetCosts, fleet: Fleet, plan: FleetPlan) -> None:
    if args.output:
        write_atomically(args.output, json.dumps(plan_file(costs, plan), indent=1) + '\n')
    title = f'{costs.model.name}: {milliseconds(plan.latency)} ms (modelled)'
    if args.timeline:
        draw_schedule(plan.order.tasks.graph, plan.order.played, costs.topology, args.timeline,
                      title)
    if args.loads:
        draw_fleet(fleet, args.loads, title, _loads(costs, plan))


def _loads(costs: FleetCosts, plan: FleetPlan) -> Mapping[str, str]:
    """Return what the plan takes of devices and media, in words, by name."""
    lasts = plan.order.played.makespan or math.inf
    played = plan.order.played
    work = sum(played.busy.values()) or math.inf
    found = {name: f'does {_part(busy / work)} of the computing,\nbusy {_part(busy / lasts)} of '
                   f'the time, holds {size(plan.memory[name])}'
             for name, busy in played.busy.items()}
    return found | {medium: f'in use {_part(seconds / lasts)} of the time'
                    for medium, seconds in played.in_use.items()}


def _part(share: float) -> str:
    """Return a share as percent; what is little is not shown as nothing."""
    return '<1%' if 0 < share < 0.01 else f'{share:.0%}'


def _quality(text: str) -> Quality:
    try:
        return parse_quality(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def _limit(text: str) -> tuple[str, float]:
    name, _, joules = text.partition('=')
    try:
        return name, float(joules)
    except ValueError:
        raise argparse.ArgumentTypeError(f'{text!r} is not a limit; say robot1=2.5') from None


@dataclass(frozen=True, slots=True)
class SharedSeconds:
    """Seconds of an inference by `intradp plan`, and of its lower bound (modelled)."""

    latency: float
    bound: float


def shared_seconds(subject: Subject, profile: Profile, own: Mapping[str, Profile],
                   topology: Topology, source: str, out: Output) -> SharedSeconds | None:
    """
    Return what sharing rows of every layer takes; None unless two devices reach each other.

    Devices take the seconds of `profile` by their speed, or those of their `own`.
    """
    if len(topology.names) != 2 or len(topology.paths) != 2:
        return None
    [other] = set(topology.names) - {source}
    up, down = topology.path(source, other), topology.path(other, source)
    profiles = {side: own.get(name) or slowed(profile, 1 / topology.device(name).speed)
                for side, name in ((ROBOT, source), (SERVER, other))}
    rate = topology.rate(source, other)
    mbps = rate / _MBIT
    plan = make_plan(
        subject, profiles, Grid(mbps, mbps, 1), out, delay=topology.delay(source, other),
        overhead=0.0, seed=0, shared_air=bool(set(up) & set(down)),
        down_ratio=topology.rate(other, source) / rate)
    return SharedSeconds(plan.entries(mbps)[SHARED].predicted, plan.book.bound(mbps) or 0.0)
