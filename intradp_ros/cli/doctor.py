# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""``intradp doctor``: what on this machine and its network keeps inferences from being shared."""
from __future__ import annotations

import argparse
from dataclasses import asdict

from intradp_ros.cli.machine_checks import check_machine
from intradp_ros.cli.network_checks import add_looking, check_network, look_around
from intradp_ros.cli.output import add_json, output, plain, table

DESCRIPTION = """\
Check this machine and its network: versions, torch and GPU, the kernel's buffers, the middleware
and its transport profile, multicast, discovery, clocks, and which models robots and servers have.
What is wrong comes with its fix. Start it in the environment of the nodes (domain, transport)."""

EPILOG = """\
examples:
  intradp doctor
  INTRADP_TRANSPORT=udp intradp doctor --namespace /robot_1 --seconds 10
  intradp doctor --json

exit status: 0 nothing keeps inferences from being shared, 1 something does (an error)"""
MARKS = {'ok': '[green]ok[/green]', 'warning': '[yellow]warning[/yellow]',
         'error': '[red]error[/red]'}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command line of the subcommand."""
    parser.description, parser.epilog = DESCRIPTION, EPILOG
    add_looking(parser, 'how long to look for nodes')
    add_json(parser)


def run(args: argparse.Namespace) -> int:
    """Check everything and return the exit status."""
    with output(args.json) as out:
        with out.status('looking around'):
            findings = [*check_machine(),
                        *check_network(look_around(args.namespace, args.seconds))]
        rows = table('intradp doctor', 'check', '', 'found', 'fix', left=4)
        for finding in findings:
            rows.add_row(plain(finding.name), MARKS[finding.state], plain(finding.found),
                         plain(finding.fix))
        out.show(rows)
        out.result({'findings': [asdict(finding) for finding in findings]})
    return int(any(finding.state == 'error' for finding in findings))
