# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""Figures of placements: machine code against numpy."""
from dataclasses import replace

import numpy as np
from plain_estimate import plain_figures
import pytest
from random_fleets import random_case

from intradp_ros.cluster.device import Device
from intradp_ros.cluster.topology import behind_access_point, Topology
from intradp_ros.planning.estimate import estimate
from intradp_ros.planning.fleet_costs import FleetCosts
from intradp_ros.planning.planning_model import Flow, Node, PlanningModel, SOURCE
from intradp_ros.systems.fleet.planner import plan_fleet


@pytest.mark.parametrize('seed', range(12))
def test_machine_code_and_numpy_agree(seed):
    rng = np.random.default_rng(seed)
    costs = random_case(rng, int(rng.integers(2, 12)), int(rng.integers(2, 5)),
                        int(rng.integers(1, 5)))
    costs = replace(costs, batches=1 + seed % 4, contended=seed % 3 > 0)
    placements = rng.integers(len(costs.groups), size=(40, len(costs.model.nodes)))
    for nodes in (1, len(costs.model.nodes)):  # the first ones, and all
        placed = np.ascontiguousarray(np.sort(placements[:, :nodes], axis=0))
        found = estimate(costs, placed)
        plain = plain_figures(costs, placed)
        for name, figures in zip(('latency', 'period', 'joules', 'memory', 'busy', 'media'),
                                 plain):
            assert getattr(found, name) == pytest.approx(figures), name


@pytest.mark.parametrize('nbytes', [0.0, 1e5])
@pytest.mark.parametrize('batches', [1, 3])
def test_nothing_goes_where_no_way_is_not_even_0_bytes(nbytes, batches):
    devices = [Device('a'), Device('b'), Device('alone')]
    pair = behind_access_point(devices[:2], 1e7)
    topology = Topology(tuple(devices), pair.media, pair.paths)
    nodes = tuple(Node(f'n{k}', 0.1, 1e6, 10.0) for k in range(3))
    flows = (Flow(SOURCE, (0,), nbytes), Flow(0, (1,), nbytes), Flow(1, (2,), nbytes),
             Flow(2, (SOURCE,), nbytes))
    costs = FleetCosts(PlanningModel('chain', nodes, flows), topology, 'a', batches=batches)
    found = estimate(costs, [[0, 2, 0], [2, 2, 2], [0, 1, 1], [0, 0, 0]])
    plain = plain_figures(costs, np.array([[0, 2, 0], [2, 2, 2], [0, 1, 1], [0, 0, 0]]))
    for latency in (found.latency, plain[0]):
        assert not np.isnan(latency).any()
        assert np.isinf(latency).tolist() == [True, True, False, False]
    plans = plan_fleet(costs, compare=True)
    assert 'alone' not in {costs.topology.names[group] for group in plans.best.placement}
