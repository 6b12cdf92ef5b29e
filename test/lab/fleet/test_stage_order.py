# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""What operators take on devices by a profile and their speeds."""
import pytest
from synthetic import random_split_graph

from intradp_lab.fleet.stage_order import seconds_by_speed
from intradp_ros.cluster.device import Device
from intradp_ros.cluster.topology import Topology
from intradp_ros.profiling.profile import OperatorTiming, Profile


def test_seconds_go_by_profile_and_speed():
    split = random_split_graph(0, 6)
    timings = tuple(OperatorTiming((op.rows,), (0.2,)) for op in split.operators)
    profile = Profile('', 0, 'x', 1, timings, 1.0, scale=0.5)
    topology = Topology((Device('a'), Device('b', speed=4.0), Device('c', speed=4.0)), (), {})
    found = seconds_by_speed(split, profile, topology, {'c': profile})
    assert found['a'] == pytest.approx([0.1] * len(timings))
    assert found['b'] == pytest.approx([0.025] * len(timings))
    assert found['c'] == found['a']
