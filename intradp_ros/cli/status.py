# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""``intradp status``: what robots, servers and planners say of themselves, now."""
from __future__ import annotations

import argparse
from collections.abc import Mapping
from typing import Any

from intradp_ros.cli.command_errors import CommandError
from intradp_ros.cli.network_checks import add_looking, look_around
from intradp_ros.cli.output import add_json, output, plain, table

DESCRIPTION = """\
Show which robots, servers, planners, devices and coordinators there are, and how they do:
by what each publishes once a second in diagnostics. Start it in the environment of the nodes
(domain, transport)."""

EPILOG = """\
examples:
  intradp status
  ros2 intradp status --namespace /robot_1 --json

exit status: 0 all are well, 1 one warns, or there is none"""
#: What each kind of node is known by, and what is shown of it.
KINDS: Mapping[str, tuple[str, tuple[str, ...]]] = {
    'device': ('weight_bytes_served', ('plan', 'inferences', 'trouble')),
    'robot': ('inferences', ('mode', 'processing_time_ms', 'inferences', 'inferences_shared',
                             'inferences_recovered', 'outages')),
    'server': ('sessions', ('sessions', 'max_sessions', 'sessions_computing')),
    'coordinator': ('missing', ('plan', 'alive', 'missing', 'trouble')),
    'planner': ('books_made', ('profiles', 'books')),
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command line of the subcommand."""
    parser.description, parser.epilog = DESCRIPTION, EPILOG
    add_looking(parser, 'how long to listen')
    add_json(parser)


def run(args: argparse.Namespace) -> int:
    """Listen, print, and return the exit status."""
    with output(args.json) as out:
        with out.status('listening'):
            seen = look_around(args.namespace, args.seconds)
        if 'failed' in seen:
            raise CommandError('; '.join(filter(None, (seen['failed'], seen['fix']))))
        found = known(seen['status'])
        rows = table('intradp status', 'node', 'is a', '', 'says', 'figures', left=5)
        for name, node in found.items():
            rows.add_row(plain(name), node['kind'], '[green]well[/green]' if node['well']
                         else '[yellow]warns[/yellow]', plain(node['message']),
                         plain(', '.join(f'{key} {value}'
                                         for key, value in node['figures'].items())))
        out.show(rows if found else 'no node of this package speaks here; `intradp doctor` '
                 'looks for the cause')
        out.result({'nodes': found})
    return 0 if found and all(node['well'] for node in found.values()) else 1


def known(status: Mapping[str, Mapping[str, Any]]) -> dict[str, dict[str, Any]]:
    """Return the nodes of this package by name, in order, with what is shown of each."""
    found: dict[str, dict[str, Any]] = {}
    for name, node in sorted(status.items()):
        for kind, (mark, shown) in KINDS.items():
            if mark in node['values']:
                figures = {key: node['values'][key] for key in shown if key in node['values']}
                found[name] = {'kind': kind, 'well': node['well'], 'message': node['message'],
                               'figures': figures}
                break
    return found
