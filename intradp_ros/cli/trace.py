# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""``intradp trace``: the next frames of a running robot as a trace for Perfetto and Chrome."""
from __future__ import annotations

import argparse
from pathlib import Path

from intradp_ros.cli.arguments import namespace, number, whole
from intradp_ros.cli.command_errors import CommandError
from intradp_ros.cli.node_request import node_request, NodeRequestError
from intradp_ros.cli.output import add_json, output
from intradp_ros.cli.output_paths import result_file
from intradp_ros.cli.view_bag import opened
from intradp_ros.core.processes import Command, module_arguments
from intradp_ros.report.chrome_trace import TracedFrame, write_trace
from intradp_ros.runtime.transport.timeline import Event

DESCRIPTION = """\
Record the next shared frames of a running robot as a Chrome trace: a track for each machine's
computing and each direction of the link, and an arrow from each transfer to what was computed
of it. Open it with https://ui.perfetto.dev or chrome://tracing. Robot and server measure only
while somebody listens."""

EPILOG = """\
examples:
  intradp trace -o trace.json
  intradp trace /robot_1/inference_node --frames 50 -o trace.json
  intradp trace --recording out/demo-language -o tokens.json

exit status: 0 the trace is written, 2 no frame came"""

OPEN = 'open it with https://ui.perfetto.dev or chrome://tracing'
#: Seconds between two timelines of a recording, whose distance is not known.
GAP = 0.01


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command line of the subcommand."""
    parser.description, parser.epilog = DESCRIPTION, EPILOG
    parser.add_argument('robot', nargs='?', type=namespace, metavar='NODE',
                        help="full name of the robot's inference node (default: the only one)")
    parser.add_argument('-o', '--out', type=result_file, required=True, metavar='FILE.json',
                        help='where to write the trace')
    parser.add_argument('--recording', type=Path, metavar='RECORDING',
                        help="write the timelines of a demo's folder or of a bag instead")
    parser.add_argument('--frames', type=whole(1, 10_000), default=10, metavar='N',
                        help='how many frames (default 10)')
    parser.add_argument('--seconds', type=number(0.0, 1e4, above=True), default=10.0,
                        help='how long to wait for them (default 10)')
    parser.add_argument('--namespace', type=namespace, default='/',
                        help='of the nodes (default /)')
    add_json(parser)


def run(args: argparse.Namespace) -> int:
    """Record, write, and return the exit status."""
    if args.recording:
        return _write_recorded(args)
    command = Command('trace', module_arguments(
        'intradp_ros.nodes.sharing.timeline_recorder', args.namespace, args.robot or '',
        str(args.frames), str(args.seconds)))
    with output(args.json) as out:
        with out.status('recording'):
            try:
                seen = node_request(command, args.seconds)
            except NodeRequestError as error:
                raise CommandError('; '.join(filter(None, (str(error), error.fix)))) from None
        frames = [TracedFrame(number, begin, [Event.from_list(span) for span in spans])
                  for number, begin, spans in seen['frames']]
        if not frames:
            raise CommandError(_why(args, seen['robots']))
        write_trace(args.out, frames, args.robot or seen['robots'][0])
        out.show(f'{len(frames)} frames in {args.out}: {OPEN}')
        out.result({'frames': len(frames), 'rejected': seen['rejected'], 'out': str(args.out)})
    return 0


def _write_recorded(args: argparse.Namespace) -> int:
    """Write all timelines of a recording, one after the other."""
    found, begin = dict[str, TracedFrame](), 0.0
    try:
        recorded = opened(args.recording)
    except ValueError as error:
        raise CommandError(str(error)) from error
    for step in range(recorded.length):
        for block in (each for section in recorded.view(step)['sections']
                      for each in section['blocks'] if each['kind'] == 'gantt'):
            spans = [Event(lane, kind, name, start / 1e3, stop / 1e3)
                     for lane, kind, name, start, stop in block['spans']]
            if (key := repr(spans)) not in found:
                found[key] = TracedFrame(len(found) + 1, begin, spans)
                begin += max(span.stop for span in spans) + GAP
    if not found:
        raise CommandError(f'{args.recording} has no timelines: demo and demo-language write '
                           'them, and a bag has them if ~/timeline was recorded')
    with output(args.json) as out:
        write_trace(args.out, list(found.values()), str(args.recording))
        out.show(f'{len(found)} timelines in {args.out}: {OPEN}')
        out.result({'frames': len(found), 'rejected': 0, 'out': str(args.out)})
    return 0


def _why(args: argparse.Namespace, robots: list[str]) -> str:
    """Return why no frame came, and what to do."""
    if not robots:
        return (f'no robot publishes timelines below {args.namespace}: start an inference node in '
                'this domain, or name its --namespace; `intradp status` shows what runs')
    if not args.robot and len(robots) > 1:
        return f'several robots publish timelines, name one: {", ".join(robots)}'
    if args.robot and args.robot not in robots:
        return f'{args.robot} publishes no timeline; these do: {", ".join(robots)}'
    return (f'{args.robot or robots[0]} answered no frame within {args.seconds:g} s: does its '
            'camera publish?')
