# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""
Commands of the laboratory: demos, benchmarks, fleets emulated on one machine.

They are a package of their own, `intradp_lab`, which no robot needs. It enters
its commands as entry points of the group `GROUP`, each a module with
``add_arguments(parser)`` and ``run(args) -> int``.
"""
from __future__ import annotations

import argparse
from collections.abc import Sequence
from importlib import metadata
from typing import Any

from intradp_ros.cli.command_errors import CommandError

GROUP = 'intradp_ros.commands'
#: Stands in a table of commands for the module of a command that the laboratory brings.
LAB = ''
MISSING = ('is a command of the package intradp_lab, which is not installed: in a clone of '
           'intradp_ros, `make build` or `pip install ./intradp_lab` installs it')


def lab_command(name: str) -> Any:
    """Return the module of a command, or what says that it is not installed."""
    for entry in metadata.entry_points(group=GROUP, name=name):
        return entry.load()
    return _Missing(name)


class _Missing:
    """Takes any words, and says how the command is installed."""

    def __init__(self, name: str) -> None:
        self._name = name

    def spelled_out(self, words: Sequence[str]) -> list[str]:
        """Return the words as they are."""
        return list(words)

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Take whatever follows."""
        parser.add_argument('words', nargs=argparse.REMAINDER)

    def run(self, args: argparse.Namespace) -> int:
        """
        Say how the command is installed.

        :raises CommandError: always.
        """
        raise CommandError(f'{self._name} {MISSING}')
