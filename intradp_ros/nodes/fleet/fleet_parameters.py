# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""What devices and coordinators of a fleet both name."""
from __future__ import annotations

from pathlib import Path

from intradp_ros.cluster.fleet_file import read_fleet
from intradp_ros.cluster.topology import Topology
from intradp_ros.dds.dds_peers import check_name
from intradp_ros.nodes.common.parameters import Parameter

#: Devices say here what they offer, below the name of their fleet.
DEVICES_TOPIC = 'devices'
FLEET = Parameter('fleet', 'fleet', 'Name of the fleet; the same on all its machines.')


def read_topology(file: str) -> Topology:
    """
    Return the devices that the parameter `fleet_file` names.

    Raises
    ------
    ValueError
        If it cannot be read, or no device node could have the name of one of them.

    """
    topology = read_fleet(Path(file)).topology
    for name in topology.names:
        try:
            check_name(name)
        except ValueError as error:
            raise ValueError(f'parameter fleet_file: {file}: {error}') from None
    return topology
