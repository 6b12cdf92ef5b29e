# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""Subcommands with verbs of their own: each has a module in this folder."""
from __future__ import annotations

import argparse
from collections.abc import Mapping
import importlib


def add_verbs(parser: argparse.ArgumentParser, verbs: Mapping[str, tuple[str, str]],
              metavar: str = 'VERB') -> None:
    """Declare verbs, each with its module and a summary; `metavar` is what they are called."""
    added = parser.add_subparsers(metavar=metavar, required=True)
    for name, (module, summary) in verbs.items():
        verb = added.add_parser(name, help=summary,
                                formatter_class=argparse.RawDescriptionHelpFormatter)
        implementation = importlib.import_module(f'intradp_ros.cli.{module}')
        implementation.add_arguments(verb)
        verb.set_defaults(run_verb=implementation.run)


def examples(command: str, verbs: Mapping[str, tuple[str, str]]) -> str:
    """Return where the help of each verb of a command is."""
    return '\n'.join(['examples:', *(f'  intradp {command} {verb} --help' for verb in verbs)])


def run_verb(args: argparse.Namespace) -> int:
    """Run the verb that is asked for."""
    status: int = args.run_verb(args)
    return status
