# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""``intradp fleet ask``: an operator's word on the plan that a coordinator keeps."""
from __future__ import annotations

import argparse

from intradp_ros.cli.arguments import looked_at
from intradp_ros.cli.call import add_call, called
from intradp_ros.cli.output import output, plain
from intradp_ros.planning.quality import parse_quality

DESCRIPTION = """\
Ask the coordinator of a fleet that plans for a target (parameter qoe): what another target, or a
fleet without some devices, would come to (tell); to plan so from now on (adapt); or to keep the
plan in use as long as its devices are there (hold).

Where the fleet has a key, adapt and hold are sealed with it: ROS lets everybody call a service."""

EPILOG = """\
examples:
  intradp fleet ask tell --without robot2
  intradp fleet ask adapt --qoe latency=100ms --key-file fleet.key

exit status: 1 if there is no plan, or the coordinator refuses"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command line of the verb."""
    parser.description, parser.epilog = DESCRIPTION, EPILOG
    parser.add_argument('what', choices=('tell', 'adapt', 'hold'), help='as above')
    parser.add_argument('--qoe', type=looked_at(parse_quality), default='', metavar='TARGET',
                        help='new targets, such as latency=200ms,rate=5Hz (default: unchanged)')
    parser.add_argument('--without', nargs='*', default=[], metavar='DEVICE',
                        help='devices to exclude from plans')
    parser.add_argument('--coordinator', default='/coordinator_node', metavar='NODE',
                        help="name of the coordinator's node (default /coordinator_node)")
    add_call(parser)


def run(args: argparse.Namespace) -> int:
    """Run the verb."""
    fields = {'what': args.what, 'qoe': args.qoe, 'without': args.without}
    with output(args.json) as out:
        answer = called(out, f'{args.coordinator}/plan_model', 'PlanModel', fields, args)
        out.show('\n'.join(map(plain, answer['text'].split('\n'))))
        out.result(answer)
    return 0 if answer['ok'] else 1
