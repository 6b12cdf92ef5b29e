# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""``intradp fleet``: networks computed by several machines together; a module for each verb."""
from __future__ import annotations

import argparse
from collections.abc import Mapping

from intradp_ros.cli.lab_commands import LAB
from intradp_ros.cli.subject import MODEL_HELP
from intradp_ros.cli.verbs import add_verbs, examples, run_verb

DESCRIPTION = f"""\
Compute a network with a fleet: several machines, of which each runs a stage of it.

A file (fleet.yaml) says which machines there are and what joins them.
{MODEL_HELP}"""

#: Verb: its module in this folder, and a summary.
VERBS: Mapping[str, tuple[str, str]] = {
    'ask': ('fleet_ask', "an operator's word on the plan that a coordinator keeps"),
    'plan': ('fleet_plan', 'divide a network among the devices; plans side by side'),
    'run': (LAB, 'a network in stages over the devices of a fleet'),
    'show': ('fleet_show', 'check a fleet file; show its devices, media and paths'),
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command line of the subcommand."""
    parser.description, parser.epilog = DESCRIPTION, examples('fleet', VERBS)
    add_verbs(parser, VERBS, command='fleet')


run = run_verb
