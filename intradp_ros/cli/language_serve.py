# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""``intradp language serve``: an OpenAI-compatible endpoint for a model on this machine."""
from __future__ import annotations

import argparse
import importlib
import socket
import threading

from intradp_ros.cli.arguments import existing_file, number, whole
from intradp_ros.cli.command_errors import CommandError
from intradp_ros.cli.language_model import add_device, add_drafts, add_fleet, add_model, add_plan
from intradp_ros.cli.language_run import local_language
from intradp_ros.cli.output import output
from intradp_ros.core.extras import pip_install
from intradp_ros.profiling.machine import prepare_process
from intradp_ros.runtime.requests.admission import ClientRates

DESCRIPTION = """\
Serve a model to clients of OpenAI's API (/v1/chat/completions, /v1/completions, /v1/models), with
devices on threads of this process. For a fleet of machines start language_node instead.

Addresses other than this machine's own need API keys."""

EPILOG = """\
examples:
  intradp language serve smollm2 --port 8000
  intradp language serve smollm2 --address 0.0.0.0 --keys keys.txt
  curl localhost:8000/v1/models"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command line of the verb."""
    parser.description, parser.epilog = DESCRIPTION, EPILOG
    add_model(parser)
    add_fleet(parser)
    add_device(parser)
    add_drafts(parser)
    add_plan(parser)
    parser.add_argument('--address', default='127.0.0.1', help='default %(default)s')
    parser.add_argument('--port', type=whole(0, 65535), default=8000,
                        help='default %(default)s; 0: one that is free')
    parser.add_argument('--keys', type=existing_file, metavar='FILE',
                        help='file of API keys: a name, a blank and a key on each line')
    parser.add_argument('--threads', type=whole(0, 256), default=0, metavar='N',
                        help='processor threads (default: all)')
    parser.add_argument('--rate', type=number(0.0, 1e6, above=True), default=5.0, metavar='N',
                        help='requests a second of each client (default %(default)s)')


def _try_port(address: str, port: int) -> None:
    """Raise CommandError if nothing can listen there, before a model is loaded."""
    try:
        with socket.create_server((address, port), family=socket.AF_INET6 if ':' in address
                                  else socket.AF_INET):
            return
    except OSError as error:
        raise CommandError(f'nothing can listen at {address}, port {port}: {error.strerror}; '
                           'name another --port or --address') from None


def run(args: argparse.Namespace) -> int:
    """Serve until the command is ended."""
    try:
        access, guard, api, server = (
            importlib.import_module(f'intradp_ros.web.{name}')
            for name in ('access', 'guard', 'openai_api', 'web_server'))
    except ModuleNotFoundError as error:
        raise CommandError(f'an endpoint needs the package {error.name}: '
                           f'{pip_install("web")}') from error
    with output(False) as out:
        try:
            keys = access.ApiKeys.load(args.keys) if args.keys else None
            access.check_address(args.address, keys)
        except ValueError as error:
            raise CommandError(str(error)) from error
        _try_port(args.address, args.port)
        if args.threads:
            prepare_process(args.threads)
        with local_language(args, out) as (local, _):
            local.head.prepare()
            app = guard.Guard(api.openai_app(local.head), access.Clients(
                keys, ClientRates(args.rate, max(1, round(2 * args.rate)))))
            running = server.WebServer(app, args.address, args.port)  # OSError: the port is taken
            try:
                out.announce(f'{local.head.name} at {running.url}/v1; Ctrl-C ends')
                threading.Event().wait()
            finally:
                running.close()
    return 0
