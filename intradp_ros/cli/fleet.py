# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""``intradp fleet``: networks computed by several machines together; a module for each verb."""
from __future__ import annotations

import argparse
from collections.abc import Mapping
import importlib

from intradp_ros.cli.subject import MODEL_HELP

DESCRIPTION = f"""\
Compute a network with a fleet: several machines, of which each runs a stage of it.

A file (fleet.yaml) says which machines there are and what joins them.
{MODEL_HELP}"""

#: Verb: its module in this folder, and a summary.
VERBS: Mapping[str, tuple[str, str]] = {
    'ask': ('fleet_ask', "an operator's word on the plan that a coordinator keeps"),
    'plan': ('fleet_plan', 'divide a network among the devices; plans side by side'),
    'run': ('fleet_run', 'a network in stages over the devices of a fleet'),
    'show': ('fleet_show', 'check a fleet file; show its devices, media and paths'),
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command line of the subcommand."""
    parser.description = DESCRIPTION
    parser.epilog = '\n'.join(['examples:', *(f'  intradp fleet {verb} --help' for verb in VERBS)])
    verbs = parser.add_subparsers(metavar='VERB', required=True)
    for name, (module, summary) in VERBS.items():
        verb = verbs.add_parser(name, help=summary,
                                formatter_class=argparse.RawDescriptionHelpFormatter)
        implementation = importlib.import_module(f'intradp_ros.cli.{module}')
        implementation.add_arguments(verb)
        verb.set_defaults(run_verb=implementation.run)


def run(args: argparse.Namespace) -> int:
    """Run the verb that is asked for."""
    status: int = args.run_verb(args)
    return status
