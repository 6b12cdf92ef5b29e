# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""What a site is, by the files that describe it: fleet, services and a plan."""
from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
import platform

from intradp_ros.cluster.device import Device
from intradp_ros.cluster.fleet_file import read_fleet
from intradp_ros.cluster.located_yaml import FleetFileError
from intradp_ros.cluster.topology import Topology
from intradp_ros.systems.serving.local_site import LocalSite, SiteSettings
from intradp_ros.systems.serving.placement_plan import read_placement
from intradp_ros.systems.serving.service import Service


@dataclass(frozen=True)
class PlannedSite:
    """
    One site: its services, the gateways of all sites by name, and its executors.

    `lanes` are the numbers of the services of each executor; None: each has all of them.
    """

    name: str
    services: tuple[Service, ...]
    gateways: Mapping[str, str]
    lanes: tuple[tuple[int, ...], ...] | None = None
    #: The file of the plan, which is watched while the site runs.
    plan: Path | None = None

    @property
    def port(self) -> int:
        """Return the port of its gateway."""
        return int(self.gateways[self.name].rpartition(':')[2])

    @property
    def others(self) -> Mapping[str, str]:
        """Return the gateways of the other sites."""
        return {site: address for site, address in self.gateways.items() if site != self.name}

    def start(self, settings: SiteSettings) -> LocalSite:
        """Start its gateway and its executors."""
        site = LocalSite(self.name, self.services, list(self.gateways) or [self.name], settings,
                         lanes=self.lanes)
        if self.plan:
            site.watch(self.plan)
        return site


def planned_site(fleet: Path, services: tuple[Service, ...], device: str = '',
                 plan: Path | None = None) -> PlannedSite:
    """
    Return the site of a device, by default of this machine.

    :raises FleetFileError, PlacementError: if a file cannot be used, or the fleet has no such
        site.
    """
    sites = read_sites(fleet)[1]
    name = own_site(sites, device)
    lanes = read_placement(plan).lanes(name, [service.name for service in services]) \
        if plan else None
    return PlannedSite(name, services, {site: device.gateway for site, device in sites.items()},
                       lanes, plan)


def read_sites(path: Path) -> tuple[Topology, Mapping[str, Device]]:
    """Return what joins a fleet, and its devices with gateways by site; FleetFileError if none."""
    fleet = read_fleet(path)
    sites: dict[str, Device] = {}
    for device in fleet.topology.devices:
        name = device.site or device.name
        if device.gateway and name in sites:
            raise FleetFileError(f'{path}: {device.name} and {sites[name].name} both have a '
                                 f'gateway of site {name}: leave one')
        if device.gateway:
            sites[name] = device
    if not sites:
        raise FleetFileError(f'{path}: no device has a gateway: add "gateway: HOST:PORT" to one '
                             'of each site')
    return fleet.topology, sites


def own_site(sites: Mapping[str, Device], name: str) -> str:
    """Return the site of the device of that name, or of this machine; FleetFileError if none."""
    wanted = name or platform.node()
    for site, device in sites.items():
        if wanted in (device.name, site):
            return site
    if not name and len(sites) == 1:
        return next(iter(sites))
    raise FleetFileError(f'{wanted!r} has no gateway in the fleet: name one of '
                         f'{", ".join(device.name for device in sites.values())}')
