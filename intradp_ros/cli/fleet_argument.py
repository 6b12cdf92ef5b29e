# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""The fleet that a command line names."""
from __future__ import annotations

from pathlib import Path

from intradp_ros.cli.command_errors import CommandError
from intradp_ros.cluster.fleet_file import Fleet, read_fleet
from intradp_ros.cluster.located_yaml import FleetFileError


def fleet_of(path: Path) -> Fleet:
    """Read a fleet's file; CommandError if it is none."""
    try:
        return read_fleet(path)
    except FleetFileError as error:
        raise CommandError(str(error)) from error
