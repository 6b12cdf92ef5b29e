# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""``ros2 intradp ...``: the command ``intradp`` as an extension of ``ros2`` (package ros2cli)."""
from __future__ import annotations

import argparse
from typing import Any

from intradp_ros.cli.main import COMMANDS, main


class IntradpCommand:
    """Share inferences of neural networks: status, plan, bench, doctor and more."""

    # What an extension of the group ros2cli.command has; ros2cli itself is not needed to load it.
    NAME: str | None = None
    EXTENSION_POINT_VERSION = '0.1'

    def add_arguments(self, parser: argparse.ArgumentParser, cli_name: str) -> None:
        """Declare that all that follows is for ``intradp``."""
        parser.usage = f'{cli_name} COMMAND ...'
        width = max(map(len, COMMANDS))
        parser.epilog = 'commands:\n' + '\n'.join(
            f'  {name:{width}}  {summary}' for name, (_, summary) in COMMANDS.items())
        parser.add_argument('argv', nargs=argparse.REMAINDER, metavar='COMMAND ...',
                            help='a command and its arguments, as of intradp')

    def main(self, *, parser: argparse.ArgumentParser, args: Any) -> int:
        """Carry a command out; return its exit status."""
        return main([*args.argv] or ['--help'])
