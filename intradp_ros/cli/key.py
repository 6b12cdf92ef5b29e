# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""``intradp key``: make the key that robots, servers and planners share."""
from __future__ import annotations

import argparse
from pathlib import Path

from intradp_ros.cli.command_errors import CommandError
from intradp_ros.core.shared_key import SharedKey

DESCRIPTION = """\
Write a new random key to a file that only its owner may read.

Copy it to every machine by a way that nobody else sees (scp, say), and name it in the parameter
`key_file` of every node."""

EPILOG = """\
examples:
  intradp key fleet.key
  ros2 run intradp_ros offload_node --ros-args -p key_file:=$HOME/fleet.key"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    parser.description, parser.epilog = DESCRIPTION, EPILOG
    parser.add_argument('file', type=Path, help='key file to write; it must not exist yet')


def run(args: argparse.Namespace) -> int:
    """Write the key."""
    try:
        SharedKey.generate().save(args.file)
    except FileExistsError:
        raise CommandError(f'{args.file} exists: remove it first, if no node needs it any more'
                           ) from None
    print(f'wrote {args.file}: copy it to all machines and set the parameter key_file of every '
          'node to it')
    return 0
