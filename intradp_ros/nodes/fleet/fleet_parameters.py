# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""What devices and coordinators of a fleet both name."""
from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from rclpy.node import Node

from intradp_ros.cluster.fleet_file import read_fleet
from intradp_ros.cluster.topology import Topology
from intradp_ros.dds.dds_peers import check_name
from intradp_ros.nodes.common.parameters import Parameter

#: Devices say here what they offer, and the coordinator what its fleet does, below its name.
DEVICES_TOPIC, STATE_TOPIC = 'devices', 'state'
FLEET = Parameter('fleet', 'fleet', 'Name of the fleet; the same on all its machines. Its topics '
                  'are in the namespace of the node, of "/NAME" in the root namespace.')


@dataclass(frozen=True, slots=True)
class FleetPlace:
    """A fleet: its name, and the namespace of its topics, '' for that of the node."""

    name: str
    namespace: str = ''

    @classmethod
    def parse(cls, text: str) -> FleetPlace:
        """Read "NAME" or "/NAMESPACE/NAME"; ValueError if it cannot be part of a topic's name."""
        namespace, slash, name = text.rpartition('/')
        for part in (*namespace.split('/')[1:], name):
            check_name(part)
        if namespace and not namespace.startswith('/'):
            raise ValueError(f'a fleet is named NAME, or from the root /NAMESPACE/NAME, got '
                             f'{text!r}')
        return cls(name, namespace or slash)

    def topic(self, below: str) -> str:
        """Return the name of a topic below that of the fleet."""
        return f'{self.namespace.rstrip("/")}/{self.name}/{below}' if self.namespace \
            else f'{self.name}/{below}'

    def namespace_of(self, node: Node) -> str:
        """Return the namespace in which a node finds the fleet's topics."""
        return self.namespace or node.get_namespace()


def read_topology(file: str) -> Topology:
    """
    Return the devices that the parameter `fleet_file` names.

    :raises ValueError: if it cannot be read, or no device node could have the name of one of them.
    """
    topology = read_fleet(Path(file)).topology
    for name in topology.names:
        try:
            check_name(name)
        except ValueError as error:
            raise ValueError(f'parameter fleet_file: {file}: {error}') from None
    return topology
