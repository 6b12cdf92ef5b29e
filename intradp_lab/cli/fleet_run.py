# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""``intradp fleet run``: a network in stages over the devices of a fleet."""
from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
import tempfile
from typing import Any

import torch

from intradp_lab.emulation.device_limits import available as cannot_limit
from intradp_lab.emulation.device_limits import LimitError
from intradp_lab.emulation.network import available
from intradp_lab.fleet.device_emulation import emulated_at
from intradp_lab.fleet.fleet_figures import (
    for_payload,
    measured_local,
    PipelineFigures,
    predicted,
    usual_inflight,
)
from intradp_lab.fleet.local_fleet import LocalFleet
from intradp_lab.fleet.namespace_fleet import run_nodes, TRANSPORT
from intradp_lab.fleet.stage_order import discipline_of, seconds_by_speed
from intradp_ros.cli.arguments import existing_file, file_of, looked_at, whole
from intradp_ros.cli.command_errors import CommandError
from intradp_ros.cli.fleet_argument import check_profiles, device_of, fleet_of
from intradp_ros.cli.output import add_json, milliseconds, Output, output, plain, table
from intradp_ros.cli.profile_arguments import own_profile, parsed_profile, read_profile
from intradp_ros.cli.subject import (
    add_model,
    load_subject,
    MODEL_HELP,
    Subject,
    tensors_of,
    varied_frames,
)
from intradp_ros.cluster.fleet_file import Fleet
from intradp_ros.cluster.topology import Topology
from intradp_ros.core.json_text import read_json
from intradp_ros.dds.transport_profile import find_transport
from intradp_ros.profiling.profile import Profile
from intradp_ros.runtime.models.model import SharedModel
from intradp_ros.schedule.stage_cuts import parse_stages, plan_of_cuts
from intradp_ros.schedule.stage_plan import StagePlan
from intradp_ros.split.checks.verify import computed_in, output_error

DESCRIPTION = f"""\
Run a network in stages over the devices of a fleet, several frames in flight at once.

First real inferences: every answer is compared with the unsplit model's.  Then the same on
emulated devices, whose operators take the seconds of this machine's profile divided by their
speed: latency of a frame that is alone, and frames per second of many, next to what the simulator
predicts.  All devices are in this process, on a network in memory; with --nodes they are ROS 2
nodes in processes of their own, in network namespaces behind one access point or in a ring (Linux,
as root).  With --limits these have part of this machine each: processor by speed, the memory and
the rate of the disk that the file names.

Stages are DEVICE, DEVICE*2+DEVICE (the first takes two frames of three), with @N where a stage
ends before operator N; stages without it are cut in proportion to speed.

{MODEL_HELP}"""

EPILOG = """\
examples:
  intradp fleet run intradp_lab.zoo.mobilenet_v2:mobilenet_v2 --input 1x3x224x224 \\
      --dtype uint8 --fleet config/fleet.yaml --stages robot1,box,server
  intradp fleet run mymodel:make --input 1x3x240x320 --fleet fleet.yaml \\
      --stages 'robot1@12,box+server' --frames 60 --json

exit status: 1 if an answer is not the unsplit model's"""

START_TIMEOUT = 60.0
#: Frames that are simulated, and held as inputs, at once.
MOST_FRAMES = 10_000


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command line of the verb."""
    parser.description, parser.epilog = DESCRIPTION, EPILOG
    add_model(parser)
    parser.add_argument('--fleet', type=existing_file, required=True, metavar='FLEET.yaml',
                        help='the devices and what joins them')
    which = parser.add_mutually_exclusive_group(required=True)
    which.add_argument('--stages', type=looked_at(parse_stages),
                       help='stages in order, with commas between them')
    which.add_argument('--plan', type=file_of(plan_of_file), metavar='PLAN.json',
                       help='a plan of stages')
    parser.add_argument('--source', metavar='DEVICE',
                        help='the device that requests frames (default: the first of the file)')
    parser.add_argument('--frames', type=whole(2, MOST_FRAMES), default=30, metavar='N',
                        help='frames that are requested together (default 30)')
    parser.add_argument('--alone', type=whole(1, MOST_FRAMES), default=4, metavar='N',
                        help='frames before them, one at a time (default 4)')
    parser.add_argument('--inflight', '--under-way', type=whole(0, 1000), default=0, metavar='N',
                        help='frames in the pipeline at most (default: two a stage and one more)')
    parser.add_argument('--profile', type=file_of(parsed_profile), metavar='PROFILE.json',
                        help="of a device of speed 1 (default: this machine's, measured)")
    parser.add_argument('--nodes', action='store_true',
                        help='as ROS 2 nodes over DDS, behind an access point or in a ring')
    parser.add_argument('--limits', action='store_true',
                        help="with --nodes: no more processor, memory and disk than is a device's")
    add_json(parser)


def run(args: argparse.Namespace) -> int:
    """Run the verb."""
    _check(args)
    with output(args.json) as out:
        fleet = fleet_of(args.fleet)
        topology, source = fleet.topology, device_of(fleet, '--source', args.source)
        _check_devices(args, topology)
        check_profiles(fleet)
        subject = load_subject(args, out)
        _plan(args, subject, topology, source,
              [1.0] * len(subject.shared.split.operators))  # before anything is measured
        own = {name: read_profile(path, subject) for name, path in fleet.profiles.items()}
        profile = read_profile(args.profile, subject) if args.profile \
            else own_profile(subject, out)
        seconds = seconds_by_speed(subject.shared.split, profile, topology, own)
        plan = _plan(args, subject, topology, source, seconds[source])
        inflight = args.inflight or usual_inflight(plan)
        share = find_transport(TRANSPORT).payload_share if args.nodes else 1.0
        expected = predicted(
            subject.shared.split, plan, seconds, for_payload(topology, share), args.alone,
            args.frames, inflight, discipline_of(plan))
        if args.nodes:
            found, differences = _nodes(args, subject, fleet, plan, profile, own, inflight,
                                        out)
        else:
            found, differences = _local(args, subject, topology, plan, profile, own, inflight,
                                        out)
        data = _summary(args, subject, plan, inflight, expected, found, differences)
        data['payload_share'] = share
        _show(data, plan, out)
        out.result(data)
    return 0 if data['exact'] else 1


def plan_of_file(path: Path) -> StagePlan:
    """Read a plan of stages; ValueError if the file is not one."""
    try:
        return StagePlan.from_json(read_json(path))
    except ValueError as error:
        raise ValueError(f'{path} is not a plan of stages: {error}') from error


def _check_devices(args: argparse.Namespace, topology: Topology) -> None:
    """Raise CommandError unless the devices of the plan or the stages are in the fleet."""
    if args.plan:
        plan = plan_of_file(args.plan)
        named = [plan.source, *plan.devices]
    else:
        named = [member.device for cut in parse_stages(args.stages) for member in cut.members]
    if unknown := [name for name in named if name not in topology.names]:
        raise CommandError(f'{args.plan or "--stages"}: {unknown[0]!r} is not in the fleet; there '
                           f'are {", ".join(topology.names)}')


def _check(args: argparse.Namespace) -> None:
    if args.nodes and (problem := available()):
        raise CommandError(f'--nodes: {problem}')
    if args.limits and (problem := 'goes with --nodes' if not args.nodes else cannot_limit()):
        raise CommandError(f'--limits: {problem}')


def _plan(args: argparse.Namespace, subject: Subject, topology: Topology, source: str,
          costs: Sequence[float]) -> StagePlan:
    try:
        if args.plan:
            plan = plan_of_file(args.plan)
        else:
            plan = plan_of_cuts(subject.shared.digest, source, parse_stages(args.stages), costs,
                                {d.name: d.speed for d in topology.devices})
        plan.check(subject.shared.split.graph, topology.names)
    except ValueError as error:
        raise CommandError(f'{args.plan or "--stages"}: {error}') from error
    if plan.digest != subject.shared.digest:
        raise CommandError(f'{args.plan} is a plan for model {plan.digest[:12]}, this is '
                           f'{subject.shared.digest[:12]}: make the plan for this model')
    return plan


def _local(args: argparse.Namespace, subject: Subject, topology: Topology, plan: StagePlan,
           profile: Profile, own: Mapping[str, Profile], inflight: int, out: Output,
           ) -> tuple[PipelineFigures, list[float]]:
    """Run real inferences and then emulated ones in this process."""
    real = dict.fromkeys(topology.names, subject.shared)
    frames = list(varied_frames(subject.inputs, args.alone + args.frames))
    with out.status('real inferences'), _local_fleet(args, topology, plan, real) as fleet:
        answers = measured_local(fleet, frames, args.alone, inflight)[1]
    differences = [_difference(subject, frame, answer.outputs)
                   for frame, answer in zip(frames, answers, strict=True)]
    slow = {d.name: emulated_at(subject.shared, own.get(d.name, profile),
                                1.0 if d.name in own else d.speed) for d in topology.devices}
    with out.status('emulated devices'), _local_fleet(args, topology, plan, slow) as fleet:
        return measured_local(fleet, frames, args.alone, inflight)[0], differences


def _local_fleet(args: argparse.Namespace, topology: Topology, plan: StagePlan,
                 models: Mapping[str, SharedModel]) -> LocalFleet:
    needed = frozenset((plan.source, *plan.devices))
    fleet = LocalFleet(topology, plan.source, models, lambda alive: plan if needed <= alive
                       else None, inflight=args.inflight, waiting=args.frames + args.alone)
    if not fleet.wait_ready(START_TIMEOUT):
        fleet.__exit__(None, None, None)
        raise CommandError('the devices did not come together: ' + '; '.join(
            fleet.coordinator.trouble() or (fleet.client.unavailable_reason(),)))
    return fleet


def _nodes(args: argparse.Namespace, subject: Subject, fleet: Fleet, plan: StagePlan,
           profile: Profile, own: Mapping[str, Profile], inflight: int, out: Output,
           ) -> tuple[PipelineFigures, list[float]]:
    """Run real inferences and then emulated ones as nodes over DDS."""
    with tempfile.TemporaryDirectory() as folder, out.status('nodes over DDS'):
        try:
            return run_nodes(subject.shared, fleet, plan, profile, Path(folder),
                             alone=args.alone, frames=args.frames, inflight=inflight,
                             limited=args.limits, own=own)
        except (LimitError, ValueError) as error:
            raise CommandError(f'--nodes: {error}') from error


def _difference(subject: Subject, frame: Sequence[torch.Tensor], outputs: Any) -> float:
    """Return the largest difference to the unsplit model, infinite if it is beyond rounding."""
    computed = computed_in(subject.graph)
    errors = [output_error('', given, wanted, computed) for given, wanted in zip(
        tensors_of(outputs), subject.unsplit(frame), strict=True)]
    return max((e.relative if e.exact else float('inf') for e in errors), default=0.0)


def _summary(args: argparse.Namespace, subject: Subject, plan: StagePlan, inflight: int,
             expected: PipelineFigures, found: PipelineFigures, differences: Sequence[float],
             ) -> dict[str, Any]:
    return {
        'model': subject.name, 'digest': subject.shared.digest, 'plan': plan.to_json(),
        'carried': 'DDS' if args.nodes else 'memory', 'inflight': inflight,
        'frames': {'alone': args.alone, 'together': args.frames},
        'predicted': asdict(expected), 'measured_on_emulated_devices': asdict(found),
        'exact': max(differences) < float('inf'),
        'max_rel_diff': max(differences) if max(differences) < float('inf') else None}


def _show(data: Mapping[str, Any], plan: StagePlan, out: Output) -> None:
    stages = table('Stages', 'stage', 'operators', 'devices')
    for number, stage in enumerate(plan.stages):
        who = ' + '.join(f'{m.device}' + (f' ({m.samples} of {plan.samples})'
                                          if len(stage.members) > 1 else '')
                         for m in stage.members)
        stages.add_row(str(number), f'{stage.operators[0]} to {stage.operators[-1]}', plain(who))
    says, saw = data['predicted'], data['measured_on_emulated_devices']
    figures = table(f'{data["model"]}, carried by {data["carried"]}', '', 'predicted', 'measured',
                    'apart')
    figures.add_row('latency alone, ms', milliseconds(says['latency']),
                    milliseconds(saw['latency']), f'{saw["latency"] / says["latency"] - 1:+.1%}')
    figures.add_row(f'frames a second, {data["inflight"]} in flight', f'{says["fps"]:.2f}',
                    f'{saw["fps"]:.2f}', f'{saw["fps"] / says["fps"] - 1:+.1%}')
    out.show(stages, figures,
             'predicted by the event simulator'
             + (f', payload having {data["payload_share"]:.0%} of the air' if
                data['payload_share'] < 1 else '') + '; measured on emulated devices',
             f'real inferences: largest difference {data["max_rel_diff"]:.1e} of the spread'
             if data['exact'] else '[red]Not exact: a difference is beyond rounding[/red]')
