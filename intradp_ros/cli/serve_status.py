# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""``intradp serve status``: who serves what, and what became of requests."""
from __future__ import annotations

import argparse
from typing import Any
import urllib.error
import urllib.request

from rich.table import Table

from intradp_ros.cli.arguments import existing_file, file_of
from intradp_ros.cli.command_errors import CommandError
from intradp_ros.cli.output import add_json, output
from intradp_ros.cluster.located_yaml import FleetFileError
from intradp_ros.core.json_text import parse_json
from intradp_ros.systems.serving.site_files import read_sites
from intradp_ros.web.access import own_key

DESCRIPTION = """\
Ask the gateways of all sites of a fleet what they serve, and what became of requests since they
started: in time, late, refused, cancelled; lost ones must be 0. Promised ms are those by which
requests are taken, for batches of each size."""

EPILOG = """\
examples:
  intradp serve status --fleet fleet.yaml
  intradp serve status --fleet fleet.yaml --key site.key --json"""
TIMEOUT = 3.0
#: Gateways are asked directly, as robots and sites do, whatever proxy the web is read by.
_OPENER = urllib.request.build_opener(urllib.request.ProxyHandler({}))
MAX_ANSWER = 4 << 20


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command line of the verb."""
    parser.description, parser.epilog = DESCRIPTION, EPILOG
    parser.add_argument('--fleet', type=existing_file, required=True, metavar='FILE',
                        help='fleet.yaml')
    parser.add_argument('--key', type=file_of(own_key), metavar='FILE',
                        help='an API key of the gateways')
    add_json(parser)


def run(args: argparse.Namespace) -> int:
    """Ask and show; 1 if a site does not answer."""
    key = own_key(args.key)
    try:
        sites = read_sites(args.fleet)[1]
    except FleetFileError as error:
        raise CommandError(str(error)) from error
    found = {site: asked(device.gateway, key) for site, device in sites.items()}
    with output(args.json) as out:
        for site, state in found.items():
            if 'error' in state:
                out.warn(f'{site} does not answer: {state["error"]}')
                continue
            out.show(_table(site, state))
            for what, why in state['problems'].items():
                out.warn(f'{site}: {what}: {why}')
            if (plan := state.get('plan', {})).get('state', 'used') != 'used':
                out.warn(f'{site}: another plan is {plan["state"]}'
                         + (f': {plan["why"]}' if plan['why'] else ''))
        out.result(found)
    return int(any('error' in state for state in found.values()))


def asked(gateway: str, key: str) -> dict[str, Any]:
    """Return what a gateway says of itself, or {"error": why} if it does not."""
    request = urllib.request.Request(f'http://{gateway}/status', headers={
        'Authorization': f'Bearer {key}'} if key else {})
    try:
        with _OPENER.open(request, timeout=TIMEOUT) as answer:
            state = parse_json(answer.read(MAX_ANSWER))
    except urllib.error.HTTPError as error:
        return {'error': f'{error}: {error.read(500).decode("utf-8", "replace")}'}
    except (OSError, ValueError) as error:
        return {'error': str(getattr(error, 'reason', error))}
    return state if isinstance(state, dict) else {'error': 'it answers something else'}


def _table(site: str, state: dict[str, Any]) -> Table:
    """Return the services of a site, one in a row."""
    table = Table(title=f'site {site}: {state["executors"]} executors, forwards to '
                  f'{", ".join(state["links"]) or "nobody"}'
                  + (f'; docked: {", ".join(state["docked"])}' if state.get('docked') else ''))
    for name in ('service', 'in time', 'late', 'refused', 'cancelled', 'lost', 'p95 ms',
                 'sent on', 'batches: promised ms'):
        table.add_column(name)
    for name, row in state['services'].items():
        batches = '; '.join(
            f'up to {batch["size"]}: ' + ', '.join(f'{b}: {ms:.0f}' for b, ms in
                                                   batch['promised_ms'].items())
            for batch in row['batches'])
        p95 = row['p95_ms']
        table.add_row(name, *(str(row[key]) for key in (
            'in_time', 'late', 'refused', 'cancelled', 'lost')),
            '' if p95 is None else f'{p95:.0f}', str(row['transfers']), batches)
    return table
