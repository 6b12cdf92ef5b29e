# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""``intradp bench``: systems compared on emulated devices and links, for a model or as a whole."""
from __future__ import annotations

import argparse
from collections.abc import Sequence

from intradp_ros.cli.subject import MODEL_HELP
from intradp_ros.cli.verbs import add_verbs, run_verb

DESCRIPTION = f"""\
Measure what each system makes of a network on a robot, a server and a link that are not here.

Robot and server are two processes with real sessions over DDS and a shaped link between them
(network namespaces: Linux, as root).  Their devices are emulated from profiles.

`intradp bench MODEL ...` is short for `intradp bench model MODEL ...`.
{MODEL_HELP}"""

EPILOG = """\
examples:
  intradp bench mymodel:make --input 1x3x480x640 --robot-profile robot.json \\
      --server-profile server.json --link wifi.csv
  intradp bench paper --smoke
  intradp bench paper

`intradp bench KIND --help` explains each kind, with examples."""

MODEL = 'model'
KINDS = {
    MODEL: ('bench_model', 'your model on your robot, server and link'),
    'transport': ('bench_transport', 'DDS on emulated links, next to a plain TCP socket'),
    'paper': ('bench_paper', "the paper's whole evaluation, with its tables"),
    'fleet': ('bench_fleet', 'plans for fleets side by side, and the adapter (modelled)'),
    'soak': ('bench_soak', 'the nodes for an hour while one thing after another goes wrong'),
}


def spelled_out(words: Sequence[str]) -> list[str]:
    """Return the words after ``bench`` with the kind of benchmark that is meant."""
    if not words or words[0] in (*KINDS, '-h', '--help'):
        return list(words)
    return [MODEL, *words]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command line of the subcommand."""
    parser.description, parser.epilog = DESCRIPTION, EPILOG
    add_verbs(parser, KINDS, 'KIND', folder=__package__)


run = run_verb
