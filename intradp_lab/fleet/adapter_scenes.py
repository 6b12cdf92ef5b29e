# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""
What the adapter is tried on: a network, a fleet behind one access point, and what happens to it.

Seconds of operators follow from the costs of recorded operators, scaled to
what a small robot's processor takes for the whole network; memory, power and
speeds are declared.
"""
from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import torch

from intradp_lab.emulation.trace import read_trace
from intradp_lab.fleet.adapter_replay import Scenario
from intradp_lab.testbed.operator_costs import profile_from_costs, shipped_costs
from intradp_lab.testbed.package_data import package_data
from intradp_lab.zoo.mobilenet_v2 import mobilenet_v2
from intradp_ros.cluster.device import Device
from intradp_ros.cluster.topology import behind_access_point
from intradp_ros.graph.capture import capture
from intradp_ros.planning.captured_model import captured_model
from intradp_ros.planning.chains import in_chain_order
from intradp_ros.planning.coarsening import coarsen
from intradp_ros.planning.fleet_costs import FleetCosts
from intradp_ros.planning.quality import Quality
from intradp_ros.power.power_states import PowerStates
from intradp_ros.split.split_graph import split_graph

#: Frames per second; seconds of the network on the robot; the air as declared (bytes per second).
FPS, ROBOT_SECONDS, AIR = 5.0, 0.3, 11e6
SECONDS = 60.0
TARGET = Quality(latency=0.2, rate=FPS)
RECORDED = ('indoors_a', 'indoors_b', 'outdoors_a')

_ROBOT = PowerStates(13.35, 4.25, 4.04, 'declared')
DEVICES = (Device('robot', 2e9, 1.0, power=_ROBOT), Device('robot2', 2e9, 1.0, power=_ROBOT),
           Device('laptop', 8e9, 2.0, power=PowerStates(25.0, 9.0, 6.0, 'declared')),
           Device('box', 4e9, 6.0, power=PowerStates(60.0, 20.0, 18.0, 'declared')))


def scene_costs() -> FleetCosts:
    """Return the network on the fleet with its target."""
    example = (torch.zeros(1, 3, 224, 224, dtype=torch.uint8),)
    split = split_graph(capture(mobilenet_v2(), example))
    profile = profile_from_costs(split, '', 'robot', shipped_costs()['robot'], ROBOT_SECONDS)
    model = coarsen(in_chain_order(captured_model(split, profile)))
    air = behind_access_point(DEVICES, AIR, 2e-3, ['box'])
    return FleetCosts(replace(model, name='MobileNetV2 224'), air, 'robot', TARGET)


def scenarios() -> Iterator[Scenario]:
    """Yield what happens: recorded and synthetic rates, a burst, a device that leaves."""
    for name in RECORDED:
        trace = read_trace(package_data('links', f'{name}.csv')).part(60.0, SECONDS)
        yield Scenario(f'recorded {name}', SECONDS,
                       tuple((time, mbps * 125e3) for time, mbps in trace))
    yield Scenario('camera burst', SECONDS, ((0.0, AIR), (15.0, 0.5 * AIR), (30.0, AIR),
                                             (45.0, 0.5 * AIR)))
    yield Scenario('steps', SECONDS, tuple(
        (10.0 * k, share * AIR) for k, share in enumerate((1.0, 0.3, 0.08, 0.5, 0.04, 1.0))))
    yield Scenario('random walk', SECONDS, _walk())
    yield Scenario('laptop leaves and returns', SECONDS, ((0.0, AIR),), (('laptop', 15.0, 40.0),))
    yield Scenario('box leaves in a burst', SECONDS, ((0.0, AIR), (10.0, 0.5 * AIR), (50.0, AIR)),
                   (('box', 20.0, 30.0),))


def _walk() -> tuple[tuple[float, float], ...]:
    """Return rates of which each is a little more or less than the one before."""
    rng = np.random.default_rng(7)
    steps = np.clip(np.cumsum(rng.normal(0, 0.12, int(SECONDS / 0.2))), -3.0, 0.3)
    return tuple((0.2 * k, float(AIR * np.exp(step))) for k, step in enumerate(steps))
