# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""Subcommands with verbs of their own: each has a module in this folder."""
from __future__ import annotations

import argparse
from collections.abc import Mapping
import importlib

from intradp_ros.cli.lab_commands import LAB, lab_command


def add_verbs(parser: argparse.ArgumentParser, verbs: Mapping[str, tuple[str, str]],
              metavar: str = 'VERB', command: str = '', folder: str = 'intradp_ros.cli') -> None:
    """
    Declare verbs, each with its module in `folder` and a summary.

    `metavar` is what they are called.
    A verb without a module is the laboratory's: `command` and the verb name it.
    """
    added = parser.add_subparsers(metavar=metavar, required=True)
    for name, (module, summary) in verbs.items():
        verb = added.add_parser(name, help=summary)
        implementation = lab_command(f'{command}-{name}') if module is LAB else \
            importlib.import_module(f'{folder}.{module}')
        implementation.add_arguments(verb)
        verb.set_defaults(run_verb=implementation.run)


def examples(command: str, verbs: Mapping[str, tuple[str, str]]) -> str:
    """Return where the help of each verb of a command is."""
    return '\n'.join(['examples:', *(f'  intradp {command} {verb} --help' for verb in verbs)])


def run_verb(args: argparse.Namespace) -> int:
    """Run the verb that is asked for."""
    status: int = args.run_verb(args)
    return status
