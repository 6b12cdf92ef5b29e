# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""The adapter in model time: no frame is lost, and little is missed against a plan that stays."""
import numpy as np
import pytest
from random_fleets import random_model

from intradp_lab.fleet.adapter_replay import GONE, READY, Replay, Scenario, SILENCE
from intradp_ros.cluster.device import Device
from intradp_ros.cluster.topology import behind_access_point
from intradp_ros.planning.fleet_costs import FleetCosts
from intradp_ros.planning.quality import Quality
from intradp_ros.power.power_states import PowerStates
from intradp_ros.systems.fleet.planner import plan_fleet

AIR, FPS = 6e6, 2.0


@pytest.fixture(scope='module')
def costs():
    robot = PowerStates(13.0, 5.0, 4.0, 'declared')
    devices = [Device('robot', 1e9, 0.5, power=robot), Device('helper', 1e9, 1.0, power=robot),
               Device('box', 1e9, 3.0, power=PowerStates(60.0, 21.0, 20.0, 'declared'))]
    topology = behind_access_point(devices, AIR, 1e-3, ['box'])
    model = random_model(np.random.default_rng(1), 8, chain=True)
    fastest = plan_fleet(FleetCosts(model, topology, 'robot')).best.latency
    return FleetCosts(model, topology, 'robot', Quality(latency=2.5 * fastest, rate=FPS))


def played(costs, scenario):
    replay = Replay(costs, scenario, FPS)
    ours, static = replay.adapter(), replay.static()
    return ours, static, replay.oracle(replay.plans)


def test_steady_air_needs_no_adapter(costs):
    ours, static, oracle = played(costs, Scenario('steady', 6.0, ((0.0, AIR),)))
    assert ours.missed == static.missed == oracle.missed == 0
    assert not ours.switches and ours.latencies == static.latencies


def test_slow_air_is_missed_while_it_is_noticed_only(costs):
    slow = Scenario('slow', 16.0, ((0.0, AIR), (4.0, 0.2 * AIR)))
    ours, static, oracle = played(costs, slow)
    assert oracle.missed <= ours.missed <= oracle.missed + 2 / FPS
    assert static.missed >= 3 * max(ours.missed, 1 / FPS)
    assert ours.lost == static.lost == 0 and ours.pause_frames <= 1


def test_a_device_that_leaves_loses_no_frame(costs):
    used = plan_fleet(costs).best
    away = next(name for name in ('helper', 'box') if used.busy[name] > 0)
    scenario = Scenario('away', 16.0, ((0.0, AIR),), ((away, 5.0, 12.0),))
    ours, static, oracle = played(costs, scenario)
    frames = int(16.0 * FPS)
    assert len(ours.latencies) == frames and ours.lost == static.lost == oracle.lost == 0
    assert 1 <= ours.by_source <= (GONE + READY + 0.2) * FPS + 2
    assert static.by_source >= 7.0 * FPS - 1 and oracle.by_source == 0
    assert ours.missed <= static.missed
    first = ours.latencies[int(5.0 * FPS)]
    assert first >= SILENCE  # it was computed when the device had been silent
