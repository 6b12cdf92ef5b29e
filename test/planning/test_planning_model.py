# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""Models to plan for: what they check, coarsening, chains, captured networks."""
from hypothesis import given, settings
from hypothesis import strategies as st
import numpy as np
import pytest
from random_fleets import random_model
from small_models import UNet
import torch

from intradp_ros.cluster.device import Device
from intradp_ros.graph.capture import capture
from intradp_ros.planning.captured_model import captured_model
from intradp_ros.planning.chains import chains, in_chain_order
from intradp_ros.planning.coarsening import coarsen, merged
from intradp_ros.planning.planning_model import Flow, Node, PlanningModel, SOURCE
from intradp_ros.profiling.profile import OperatorTiming, Profile
from intradp_ros.split.split_graph import split_graph

SEEDS = st.integers(0, 10_000)


def model_of(seed, nodes=30):
    return random_model(np.random.default_rng(seed), nodes)


def crossing(model, nodes):
    """Return the bytes that leave a set of nodes, or come back to the source."""
    return sum(flow.nbytes for flow in model.flows if flow.maker in nodes
               and any(r not in nodes for r in flow.readers))


@settings(max_examples=30)
@given(SEEDS)
def test_coarsening_keeps_work_weights_and_what_crosses(seed):
    model = model_of(seed)
    coarse = coarsen(model, 0.2)
    assert 1 < len(coarse.nodes) < len(model.nodes)
    assert sum(n.seconds for n in coarse.nodes) == pytest.approx(
        sum(n.seconds for n in model.nodes))
    assert coarse.weight_bytes == pytest.approx(model.weight_bytes)
    sizes = [n.name.split('..') for n in coarse.nodes]
    ends = [int(parts[-1][1:]) + 1 for parts in sizes]
    for k, end in enumerate(ends):  # the same bytes cross each border that is left
        assert crossing(coarse, set(range(k + 1))) == pytest.approx(
            crossing(model, set(range(end))))


@settings(max_examples=30)
@given(SEEDS, st.floats(0.01, 0.3))
def test_what_was_merged_is_small_together(seed, small):
    model = model_of(seed)
    work, weights = sum(n.seconds for n in model.nodes), model.weight_bytes
    for node in coarsen(model, small).nodes:
        if '..' in node.name:
            assert node.seconds <= small * work * 1.0001
            assert node.weight_bytes <= small * weights * 1.0001


def test_as_many_nodes_as_wanted_are_left_at_most():
    assert len(coarsen(model_of(1, 200), 0.0, most=40).nodes) <= 40


def test_profiles_of_devices_are_merged_too():
    model = random_model(np.random.default_rng(0), 4, chain=True)
    model = PlanningModel(model.name, model.nodes, model.flows, '', {
        'd': {1: (1.0, 2.0, 3.0, 4.0), 2: (1.5, 3.0, 4.0, 5.0)}})
    joined = merged(model, [2])
    assert list(joined.seconds(Device('d'), 1)) == [3, 7]
    assert list(joined.seconds(Device('d'), 2)) == [4.5, 9]
    assert list(joined.seconds(Device('d'), 4)) == [9, 18]  # beyond: in proportion


def test_between_measured_batches_seconds_are_linear():
    model = PlanningModel('m', (Node('a', 1.0),), (Flow(SOURCE, (0,), 8.0),), '',
                          {'d': {1: (1.0,), 5: (3.0,)}})
    assert model.seconds(Device('d', speed=9), 3) == pytest.approx([2.0])
    assert model.seconds(Device('other', speed=2), 3) == pytest.approx([1.5])


@settings(max_examples=40)
@given(SEEDS)
def test_chains_have_every_node_once_and_stand_behind_what_they_read(seed):
    model = model_of(seed, 20)
    found = chains(model)
    order = [node for chain in found for node in chain]
    assert sorted(order) == list(range(20))
    reads = {k: {f.maker for f in model.flows if k in f.readers} - {SOURCE} for k in range(20)}
    for chain in found:
        assert all(reads[b] == {a} for a, b in zip(chain, chain[1:]))
    for k, node in enumerate(order):
        assert reads[node] <= set(order[:k])


def test_parallel_encoders_are_chains_of_their_own():
    names = ['image1', 'text1', 'image2', 'text2', 'join']
    flows = [Flow(SOURCE, (0,), 1.0), Flow(SOURCE, (1,), 1.0), Flow(0, (2,), 1.0),
             Flow(1, (3,), 1.0), Flow(2, (4,), 1.0), Flow(3, (4,), 1.0), Flow(4, (SOURCE,), 1.0)]
    model = PlanningModel('two senses', tuple(Node(n, 1.0) for n in names), tuple(flows), '',
                          {'d': {1: (1.0, 2.0, 3.0, 4.0, 5.0)}})
    ordered = in_chain_order(model)
    assert [n.name for n in ordered.nodes] == ['image1', 'image2', 'text1', 'text2', 'join']
    assert list(ordered.seconds(Device('d'), 1)) == [1, 3, 2, 4, 5]
    assert Flow(3, (4,), 1.0) in ordered.flows


@pytest.mark.parametrize('nodes, flows, message', [
    ((), (), 'no operators'),
    ((Node('a', -1.0),), (), 'a needs seconds'),
    ((Node('a', float('nan')),), (), 'a needs seconds'),
    ((Node('a', 1.0), Node('b', 1.0)), (Flow(1, (0,), 1.0),), 'only what earlier'),
    ((Node('a', 1.0),), (Flow(0, (7,), 1.0),), 'only what earlier'),
    ((Node('a', 1.0),), (Flow(SOURCE, (0,), float('inf')),), 'a value needs'),
])
def test_bad_models_are_refused(nodes, flows, message):
    with pytest.raises(ValueError, match=message):
        PlanningModel('bad', nodes, flows)


def test_a_captured_network_has_its_bytes_and_the_seconds_of_its_profile():
    network, example = UNet().eval(), torch.zeros(1, 3, 32, 32)
    split = split_graph(capture(network, (example,)))
    count = len(split.operators)
    profile = Profile('d', 2, 'board', 1, tuple(
        OperatorTiming((1, op.rows), (1e-4, 1e-3 * (k + 1))) if op.rows > 1
        else OperatorTiming((1,), (1e-3 * (k + 1),)) for k, op in enumerate(split.operators)),
        1.0, scale=2.0)
    model = captured_model(split, profile, {'own': profile})
    assert [n.operators for n in model.nodes] == [(k,) for k in range(count)]
    assert [n.seconds for n in model.nodes] == pytest.approx(
        [2e-3 * (k + 1) for k in range(count)])
    assert model.weight_bytes == sum(p.nbytes for p in split.graph.parameters.values())
    assert list(model.seconds(Device('own', speed=5), 1)) == [n.seconds for n in model.nodes]
    into = [f for f in model.flows if f.maker == SOURCE]
    assert [f.nbytes for f in into] == [example.nbytes]
    assert sum(SOURCE in f.readers for f in model.flows) == len(split.graph.output_values)
