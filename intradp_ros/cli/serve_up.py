# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""``intradp serve up``: the gateway and the executors of one site, on this machine."""
from __future__ import annotations

import argparse
import importlib
import logging
import threading
from typing import Any

from intradp_ros.cli.arguments import existing_file, number, whole
from intradp_ros.cli.command_errors import CommandError
from intradp_ros.cli.output import output
from intradp_ros.cli.output_paths import result_folder
from intradp_ros.core.extras import pip_install
from intradp_ros.systems.serving.local_site import SiteSettings
from intradp_ros.systems.serving.service import read_services
from intradp_ros.systems.serving.site_files import planned_site

DESCRIPTION = """\
Run one site: its gateway, which takes requests, and processes that compute them. Sites forward to
each other what one of them cannot answer in time. An executor serves once its models are loaded
and measured; batches are used if their rows are shown to be apart.

fleet.yaml names the sites by the devices that have a gateway:
  devices:
    box1: {memory: 16 GB, site: dock, gateway: 192.168.1.10:8400}
    box2: {memory: 16 GB, site: hall, gateway: 192.168.1.11:8400}

services.yaml names the models:
  services:
    detector: {model: yolo.graph, deadline: 100 ms, rate: 15, keep: newest}
    pi0: {model: "policies:pi0 1x3x224x224 uint8", deadline: 150 ms, ignore: [prompt]}"""

EPILOG = """\
examples:
  intradp serve up --fleet fleet.yaml --services services.yaml
  intradp serve up --fleet fleet.yaml --services services.yaml --device box1 \\
      --address 0.0.0.0 --keys keys.txt --site-key site.key"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command line of the verb."""
    parser.description, parser.epilog = DESCRIPTION, EPILOG
    parser.add_argument('--fleet', type=existing_file, required=True, metavar='FILE',
                        help='fleet.yaml')
    parser.add_argument('--services', type=existing_file, required=True, metavar='FILE',
                        help='services.yaml')
    parser.add_argument('--plan', type=existing_file, metavar='FILE', help='a placement of '
                        'serve plan: what each executor runs, also once the file changes '
                        '(default: each runs all services)')
    parser.add_argument('--device', default='', metavar='NAME', help='the device that this '
                        'machine is in the fleet, or its site (default: its host name)')
    parser.add_argument('--address', default='127.0.0.1', help='to listen on; others than this '
                        "machine's own need API keys (default %(default)s)")
    parser.add_argument('--keys', type=existing_file, metavar='FILE', help='API keys of robots '
                        'and other sites: a name, a blank and a key on each line; that of a site '
                        'has its name')
    parser.add_argument('--site-key', type=existing_file, metavar='FILE',
                        help='the key by which other sites know this one')
    parser.add_argument('--docks', type=_names, default=(), metavar='NAMES', help='names in '
                        '--keys, with commas, of robots that may compute for this site while '
                        'they are on their docks (serve dock); any: all that may ask')
    parser.add_argument('--executors', type=whole(1, 64), metavar='N', help='processes that '
                        'compute (default: 1, or those of the plan)')
    parser.add_argument('--threads', type=whole(1, 256), default=1, metavar='N',
                        help='processor threads of each (default %(default)s)')
    parser.add_argument('--compute', default='cpu', metavar='DEVICE',
                        help='cpu, or a device of PyTorch such as cuda (default %(default)s)')
    parser.add_argument('--rate', type=number(0.0, 1e6, above=True), default=100.0, metavar='N',
                        help='connections, and requests over HTTP, a second of each client '
                        '(default %(default)s)')
    parser.add_argument('--grpc', type=whole(0, 65535), default=0, metavar='PORT',
                        help='serve the Open Inference Protocol over gRPC, too, at this port')
    parser.add_argument('--ray', default='', metavar='ADDRESS', help='run the executors in a Ray '
                        'cluster: HOST:PORT, auto for that of this machine, local to start one')
    parser.add_argument('--logs', type=result_folder, metavar='FOLDER',
                        help='for logs of executors')


def run(args: argparse.Namespace) -> int:
    """Serve until the command is ended."""
    if args.plan and args.executors is not None:
        raise CommandError('the plan says how many executors there are: leave --executors out')
    web = site_server()
    try:
        site = planned_site(args.fleet, read_services(args.services), args.device, args.plan)
        access = web.SiteAccess.load(args.address, args.keys, args.site_key, args.rate,
                                     args.grpc, args.docks)
    except (ModuleNotFoundError, ValueError) as error:
        raise CommandError(str(error)) from error
    logging.basicConfig(level=logging.INFO, format='%(levelname)s %(message)s')
    logging.getLogger('websockets').setLevel(logging.WARNING)
    with output(False) as out:
        try:
            local = site.start(SiteSettings(args.executors or 1, args.threads, args.compute,
                                            args.logs, args.ray))
        except (ModuleNotFoundError, ConnectionError) as error:
            raise CommandError(str(error)) from error
        try:
            server = web.SiteServer(local.gateway, site.port, site.others, access)
            also = f', gRPC at port {args.grpc}' if args.grpc else ''
            out.announce(f'site {site.name} at {server.url}{also}; services: '
                         f'{", ".join(service.name for service in site.services)}; Ctrl-C ends')
            try:
                threading.Event().wait()
            finally:
                server.close()
        finally:
            local.close()
    return 0


def _names(text: str) -> tuple[str, ...]:
    return tuple(name.strip() for name in text.split(',') if name.strip())


def site_server() -> Any:
    """Return the module of the web; CommandError if a package is missing."""
    try:
        return importlib.import_module('intradp_ros.web.site_server')
    except ModuleNotFoundError as error:
        raise CommandError(f'serving needs the package {error.name}: '
                           f'{pip_install("serving")}') from error
