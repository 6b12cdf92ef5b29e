# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""Fleets in which some division of the network just fits get a plan, however nodes were merged."""
from dataclasses import replace

import numpy as np
import pytest
from random_fleets import random_model, random_topology

from intradp_ros.cluster.topology import Topology
from intradp_ros.planning.chains import in_chain_order
from intradp_ros.planning.coarsening import merged
from intradp_ros.planning.fleet_costs import FleetCosts
from intradp_ros.planning.quality import Quality
from intradp_ros.planning.shares import largest_remainder
from intradp_ros.systems.fleet.finer_nodes import plan_in_nodes
from intradp_ros.systems.fleet.live_planner import LivePlanner
from intradp_ros.systems.fleet.partitioner import NothingFits, reference_scale
from intradp_ros.systems.fleet.planner import judge, plan_fleet


def just_fits(seed, equal):
    """Return a fleet with the room that one division of all nodes takes, and that division."""
    rng = np.random.default_rng(seed)
    devices, nodes = 3, int(rng.integers(18, 30))
    model = in_chain_order(random_model(rng, nodes, chain=bool(seed % 2)))
    model = replace(model, nodes=tuple(
        replace(node, operators=(k,)) for k, node in enumerate(model.nodes)))
    fine = FleetCosts(model, random_topology(rng, devices), 'd0')
    counts = largest_remainder([1.0] * devices, nodes) if equal else \
        np.diff([0, *sorted(rng.choice(np.arange(1, nodes), devices - 1, replace=False)), nodes])
    order = range(devices) if equal else rng.permutation(devices)
    witness = np.repeat(order, counts).tolist()
    held = judge(fine, reference_scale(fine), '', witness).memory
    room = tuple(replace(device, memory_bytes=held[device.name] * (1 + 1e-6))
                 for device in fine.topology.devices)
    topology = Topology(room, fine.topology.media, fine.topology.paths)
    return replace(fine, topology=topology), witness


@pytest.mark.parametrize('equal', [True, False], ids=['equal split', 'any split'])
@pytest.mark.parametrize('seed', range(3))
def test_what_fits_in_the_nodes_of_the_network_gets_a_plan(seed, equal):
    fine, witness = just_fits(seed, equal)
    assert not judge(fine, reference_scale(fine), '', witness).beyond
    costs, plans = plan_in_nodes(fine, 0.25)
    assert not plans.best.beyond
    assert all(plans.best.memory[d.name] <= d.memory_bytes for d in fine.topology.devices)
    assert len(plans.best.placement) == len(costs.model.nodes)


def test_a_target_that_needs_finer_nodes_is_met():
    fine, witness = just_fits(1, True)
    wanted = judge(fine, reference_scale(fine), '', witness).latency
    fine = replace(fine, quality=Quality(latency=wanted * (1 + 1e-6)))
    assert plan_in_nodes(fine, 0.25)[1].best.meets


def test_a_coordinator_plans_in_finer_nodes_where_nothing_fits_in_its_own():
    fine, _ = just_fits(0, True)
    coarse = replace(fine, model=merged(fine.model, [len(fine.model.nodes) // 2]))
    with pytest.raises(NothingFits):
        plan_fleet(coarse)
    live = LivePlanner(coarse, fine=fine)
    assert live.plan(fine.topology.names, 0.0) is not None
    assert live.predicted is not None and not live.predicted.beyond
