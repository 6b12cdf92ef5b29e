# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""Language models in a coordinator node: who holds which blocks, for the fleet of a file."""
from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from intradp_ros.blobs.store import BlobStore
from intradp_ros.core.cache_folder import cache_folder
from intradp_ros.nodes.common.lifecycle import ManagedNode
from intradp_ros.nodes.fleet.fleet_parameters import read_topology
from intradp_ros.nodes.language.language_parameters import LANGUAGE_MODEL
from intradp_ros.nodes.language.named_model import opened
from intradp_ros.runtime.member.fleet_coordinator import FleetCoordinator
from intradp_ros.systems.language.costs import LanguageCosts
from intradp_ros.systems.language.live_planner import LanguagePlanner
from intradp_ros.systems.language.measure import measured_blocks

#: Seconds that a message takes in addition to its way.
_HOP = 1e-3


class LanguagePlanning(LanguagePlanner):
    """
    Plans one model; seconds of its blocks are measured on this machine, which has speed 1.

    :raises ValueError: if a parameter is empty, or a file that it names makes no sense.
    """

    def __init__(self, node: ManagedNode, given: Mapping[str, Any]) -> None:
        for name in (LANGUAGE_MODEL.name, 'fleet_file', 'head'):
            if not given[name]:
                raise ValueError(f'parameter {name} is empty: a language model is planned with it')
        topology = read_topology(given['fleet_file'])
        if given['head'] not in topology.names:
            raise ValueError(f'parameter head: there is no device {given["head"]!r} in '
                             f'{given["fleet_file"]}; there are {", ".join(topology.names)}')
        store = BlobStore(cache_folder() / 'language' / 'blobs', 1 << 60)
        manifest = opened(given[LANGUAGE_MODEL.name], store)
        seconds = measured_blocks(manifest, store)
        super().__init__(LanguageCosts(
            manifest, topology, seconds.attention, seconds.mlp, seconds.head, _HOP,
            min(given['tokens'], manifest.context), blocks=seconds.blocks), given['head'],
            node.info)

    def start(self, coordinator: FleetCoordinator) -> None:
        """Work with a coordinator from now on: nothing but plans is needed."""
