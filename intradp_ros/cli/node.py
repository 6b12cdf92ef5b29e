# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""``intradp node``: start a node where there is no ``ros2 run``."""
from __future__ import annotations

import argparse
import os
import sys

from intradp_ros.core.processes import module_arguments
from intradp_ros.dds.transport_profile import possible_environment, TRANSPORTS
from intradp_ros.nodes import node_modules

DESCRIPTION = """\
Start a node of this package in this terminal, as `ros2 run intradp_ros NAME` does, also where
ROS 2 is installed as wheels, without the command ros2. Machines that work together need the same
--transport; it is chosen as launch files choose it."""

#: Nodes of fleets, which share the air.
FLEET_NODES = ('coordinator_node', 'device_node', 'language_node')

#: Ctrl-C ends a node that is being imported without a traceback; later it takes signals itself.
SILENT = ('import signal; signal.getsignal(2) is signal.default_int_handler and '
          'signal.signal(2, signal.SIG_DFL)')

EPILOG = """\
examples:
  intradp node offload_node
  intradp node offload_node --ros-args --params-file server.yaml
  intradp node device_node --ros-args -p device_name:=robot1 -r image:=/camera/image_raw

exit status: that of the node"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command line."""
    parser.description, parser.epilog = DESCRIPTION, EPILOG
    parser.add_argument('--transport', default='', choices=list(TRANSPORTS),
                        help='how Fast DDS carries tensors (default: air for '
                             f'{", ".join(FLEET_NODES)}, udp for the others)')
    parser.add_argument('name', choices=sorted(node_modules()), metavar='NAME',
                        help=f'one of {", ".join(sorted(node_modules()))}')
    parser.add_argument('words', nargs=argparse.REMAINDER, metavar='...',
                        help="the node's arguments: --ros-args and what follows")


def run(args: argparse.Namespace) -> int:
    """Become the node."""
    transport = args.transport or ('air' if args.name in FLEET_NODES else 'udp')
    variables, warning = possible_environment(transport)
    if warning:
        print(f'intradp: warning: {warning}', file=sys.stderr)
    words = module_arguments(node_modules()[args.name], *args.words)
    words[2] = f'{SILENT}; {words[2]}'
    os.execvpe(words[0], words, {**os.environ, **variables})
