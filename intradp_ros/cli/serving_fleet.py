# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""The sites that a fleet file describes."""
from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
import platform

from intradp_ros.cli.command_errors import CommandError
from intradp_ros.cluster.device import Device
from intradp_ros.cluster.fleet_file import read_fleet
from intradp_ros.cluster.located_yaml import FleetFileError
from intradp_ros.cluster.topology import Topology


def sites_of(path: Path) -> Mapping[str, Device]:
    """Return the devices with gateways by the names of their sites; CommandError without any."""
    return read_sites(path)[1]


def read_sites(path: Path) -> tuple[Topology, Mapping[str, Device]]:
    """Return what joins a fleet, and its sites as `sites_of` does."""
    try:
        fleet = read_fleet(path)
    except FleetFileError as error:
        raise CommandError(str(error)) from error
    sites: dict[str, Device] = {}
    for device in fleet.topology.devices:
        name = device.site or device.name
        if device.gateway and name in sites:
            raise CommandError(f'{path}: {device.name} and {sites[name].name} both have a gateway '
                               f'of site {name}: leave one')
        if device.gateway:
            sites[name] = device
    if not sites:
        raise CommandError(f'{path}: no device has a gateway: add "gateway: HOST:PORT" to one of '
                           'each site')
    return fleet.topology, sites


def own_site(sites: Mapping[str, Device], name: str) -> str:
    """Return the site of the device of that name, or of this machine; CommandError if none is."""
    wanted = name or platform.node()
    for site, device in sites.items():
        if wanted in (device.name, site):
            return site
    if not name and len(sites) == 1:
        return next(iter(sites))
    raise CommandError(f'{wanted!r} has no gateway in the fleet: name with --device one of '
                       f'{", ".join(device.name for device in sites.values())}')
