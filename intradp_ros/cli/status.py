# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""``intradp status``: what robots, servers and planners say of themselves, now."""
from __future__ import annotations

import argparse

from intradp_ros.cli.command_errors import CommandError
from intradp_ros.cli.network_checks import add_looking, look_around
from intradp_ros.cli.output import add_json, output, plain, table
from intradp_ros.report.view.kinds import known

DESCRIPTION = """\
Show which robots, servers, planners, devices and coordinators there are, and how they do:
by what each publishes once a second in diagnostics. Start it in the environment of the nodes
(domain, transport)."""

EPILOG = """\
examples:
  intradp status
  ros2 intradp status --namespace /robot_1 --json

exit status: 0 all are well, 1 one warns, or there is none"""


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
