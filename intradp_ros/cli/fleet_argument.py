# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""The fleet that a command line names."""
from __future__ import annotations

from pathlib import Path

from intradp_ros.cli.command_errors import CommandError
from intradp_ros.cli.profile_arguments import parsed_profile
from intradp_ros.cluster.fleet_file import Fleet, read_fleet
from intradp_ros.cluster.located_yaml import FleetFileError


def fleet_of(path: Path) -> Fleet:
    """Read a fleet's file; CommandError if it is none."""
    try:
        return read_fleet(path)
    except FleetFileError as error:
        raise CommandError(str(error)) from error


def device_of(fleet: Fleet, option: str, name: str | None) -> str:
    """Return a device's name, by default the first one's; CommandError if there is none such."""
    names = fleet.topology.names
    if name is not None and name not in names:
        raise CommandError(f'{option}: there is no device {name!r} in the fleet; there are '
                           + ', '.join(names))
    return name or names[0]


def check_profiles(fleet: Fleet) -> None:
    """Raise CommandError unless the profiles that a fleet's file names are some, of any model."""
    for path in fleet.profiles.values():
        try:
            parsed_profile(path)
        except (ValueError, OSError) as error:
            raise CommandError(str(error)) from error
