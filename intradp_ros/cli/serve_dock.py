# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""``intradp serve dock``: a robot computes for a site while it is on its dock."""
from __future__ import annotations

import argparse
import importlib
import logging
import threading

from intradp_ros.cli.arguments import existing_file, file_of, whole
from intradp_ros.cli.command_errors import CommandError
from intradp_ros.cli.output import output
from intradp_ros.cli.output_paths import result_file
from intradp_ros.core.extras import pip_install
from intradp_ros.systems.serving.service import read_services
from intradp_ros.web.access import own_key

DESCRIPTION = """\
Offer a site what this machine can compute, for as long as both are there: a robot that charges.
Its services must be those of the site, of the same models. Start it on the dock and end it, or
just drive away: what the robot had is then answered by others, if time is left."""

EPILOG = """\
examples:
  intradp serve dock --site 192.168.1.10:8400 --services services.yaml --key robot7.key"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command line of the verb."""
    parser.description, parser.epilog = DESCRIPTION, EPILOG
    parser.add_argument('--site', required=True, metavar='HOST:PORT', help='its gateway')
    parser.add_argument('--services', type=existing_file, required=True, metavar='FILE',
                        help='services.yaml: what this robot offers')
    parser.add_argument('--key', type=file_of(own_key), metavar='FILE',
                        help='the API key by which the site knows this robot')
    parser.add_argument('--threads', type=whole(1, 256), default=1, metavar='N',
                        help='processor threads that compute (default %(default)s)')
    parser.add_argument('--compute', default='cpu', metavar='DEVICE',
                        help='cpu, or a device of PyTorch such as cuda (default %(default)s)')
    parser.add_argument('--log', type=result_file, metavar='FILE',
                        help='for what the models print')


def run(args: argparse.Namespace) -> int:
    """Offer until the command is ended."""
    try:
        services = [s for s in read_services(args.services) if not s.seconds]
        client = importlib.import_module('intradp_ros.web.dock_client')
    except ModuleNotFoundError as error:
        raise CommandError(f'serving needs the package {error.name}: '
                           f'{pip_install("serving")}') from error
    except ValueError as error:
        raise CommandError(str(error)) from error
    if not services:
        raise CommandError(f'{args.services} has only emulated services: nothing to offer')
    logging.basicConfig(level=logging.INFO, format='%(levelname)s %(message)s')
    logging.getLogger('websockets').setLevel(logging.WARNING)
    with output(False) as out:
        docking = client.Docking(args.site, services, own_key(args.key), threads=args.threads,
                                 device=args.compute, log=args.log)
        try:
            out.announce(f'offers {", ".join(service.name for service in services)} to '
                         f'{args.site}; Ctrl-C ends')
            threading.Event().wait()
        finally:
            docking.close()
    return 0
