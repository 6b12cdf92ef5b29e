# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""``intradp serve``: many robots' requests, answered in time by several sites."""
from __future__ import annotations

import argparse
from collections.abc import Mapping

from intradp_ros.cli.verbs import add_verbs, examples, run_verb

DESCRIPTION = """\
Serve models to many robots from several edge sites. Each request is answered in time, or refused
at once with the reason and the time at which it would be taken. Robots need nothing of this
package: clients of openpi connect as they are, to ws://HOST:PORT/SERVICE?deadline_ms=150."""

#: Verb: its module in this folder, and a summary.
VERBS: Mapping[str, tuple[str, str]] = {
    'up': ('serve_up', 'run the gateway and the executors of one site'),
    'dock': ('serve_dock', 'let this robot compute for a site while it is on its dock'),
    'plan': ('serve_plan', 'which site would run what, and what would be answered in time'),
    'status': ('serve_status', 'who serves what, and what became of requests'),
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command line of the subcommand."""
    parser.description, parser.epilog = DESCRIPTION, examples('serve', VERBS)
    add_verbs(parser, VERBS)


run = run_verb
