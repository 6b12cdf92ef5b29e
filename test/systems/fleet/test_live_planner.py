# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""The coordinator's planner: rates, batteries and devices come in by heartbeats, plans go out."""
from __future__ import annotations

from dataclasses import replace
import math
import threading
import time

import numpy as np
import pytest
from random_fleets import random_model

from intradp_ros.cluster.device import Device
from intradp_ros.cluster.fleet_messages import Heartbeat, LinkMeasurement
from intradp_ros.cluster.fleet_view import TRUSTED
from intradp_ros.cluster.topology import behind_access_point
from intradp_ros.planning.fleet_costs import FleetCosts
from intradp_ros.planning.quality import Quality
from intradp_ros.power.power_states import PowerStates
from intradp_ros.systems.fleet.live_planner import LivePlanner
from intradp_ros.systems.fleet.pipeline_planner import PipelinePlanner
from intradp_ros.systems.fleet.planner import plan_fleet

ALL = frozenset({'robot', 'helper', 'box'})
AIR = 6e6


@pytest.fixture(scope='module')
def costs() -> FleetCosts:
    """Return a slow robot, a helper and a quick box, for a target that only the box lets meet."""
    model = random_model(np.random.default_rng(1), 6, chain=True)
    model = replace(model, digest='d', nodes=tuple(
        replace(node, operators=(k,)) for k, node in enumerate(model.nodes)))
    power = PowerStates(13.0, 5.0, 4.0, 'declared')
    devices = [Device('robot', 1e9, 0.25, power=power), Device('helper', 1e9, 1.0, power=power),
               Device('box', 1e9, 3.0, power=power)]
    found = FleetCosts(model, behind_access_point(devices, AIR, 1e-3, ['box']), 'robot')
    return replace(found, quality=Quality(latency=1.5 * plan_fleet(found).best.latency))


def beat(device: str, number: int, **said: object) -> Heartbeat:
    return Heartbeat(device, 1, number, **said)


def test_memory_that_a_device_declares_limits_what_plans_take_of_it(costs: FleetCosts) -> None:
    live = LivePlanner(costs)
    live.plan(ALL, 0.0)
    taken = live.predicted.memory['box']
    assert taken > 0
    live.heard(beat('box', 1, free_memory=0.5 * taken), 0.1)
    live.look(0.2)
    assert live.predicted is not None and live.predicted.memory['box'] <= 0.5 * taken
    live.heard(beat('box', 2, free_memory=0.0), 0.3)  # 0 sets no limit
    live.look(0.4)
    live.look(10.0)
    assert live.predicted.memory['box'] > 0.5 * taken


def test_a_device_that_leaves_is_planned_around_and_counted_on_when_it_is_back(
        costs: FleetCosts) -> None:
    live = LivePlanner(costs)
    first = live.plan(ALL, 0.0)
    assert first and 'box' in first.devices and live.predicted and live.predicted.meets
    without = live.plan(ALL - {'box'}, 1.0)
    assert without and 'box' not in without.devices
    assert live.plan(ALL, 2.0) == first
    assert live.statistics.switches == 2
    assert live.plan(ALL - {'robot'}, 3.0) is None, 'nobody asks'


def test_a_battery_that_runs_low_is_spared(costs: FleetCosts) -> None:
    live = LivePlanner(costs)
    live.plan(ALL, 0.0)
    for number, level, used in ((1, 0.11, True), (2, 0.09, False), (3, 0.14, False),
                                (4, 0.16, True)):
        live.heard(beat('box', number, battery=level), float(number))
        plan = live.look(float(number))
        assert plan and ('box' in plan.devices) is used, level
    live.heard(beat('stranger', 1, battery=0.0), 5.0)
    assert not live._view.low


def test_measured_rates_lead_to_another_plan_and_old_ones_are_forgotten(costs: FleetCosts) -> None:
    live = LivePlanner(costs)
    first = live.plan(ALL, 0.0)
    for number in range(20):
        links = {'box': LinkMeasurement(0.02 * AIR * (1 + 1e-6 * number), 1e-3)}
        live.heard(beat('robot', number, links=links), 0.2 * number)
        slow = live.look(0.2 * number)
    assert slow != first and live.statistics.switches >= 1
    assert '(measured' in live.text(4.0) and '1.0 Mbit/s' in live.text(4.0)
    later = 5.0 + TRUSTED
    live.look(later)
    assert live.look(later + 10.0) == first, 'the declared rate counts again'


def test_a_figure_that_is_reported_again_is_one_measurement(costs: FleetCosts) -> None:
    live = LivePlanner(costs)
    live.plan(ALL, 0.0)
    for number in range(30):
        live.heard(beat('robot', number, links={'box': LinkMeasurement(AIR / 2, 1e-3)}),
                   number / 5)
    assert 'measured 6 s ago' in live.text(6.0)


@pytest.mark.usefixtures('eager_switches')
def test_devices_are_heard_on_other_threads_while_it_is_asked(costs: FleetCosts) -> None:
    live, failed = LivePlanner(costs), []
    live.plan(ALL, 0.0)
    live.hold()
    over = threading.Event()

    def say(device: str, peer: str) -> None:
        number = 0
        try:
            while not over.is_set():
                number += 1
                links = {peer: LinkMeasurement(AIR * (1 + 1e-6 * number), 1e-3)}
                live.heard(beat(device, number, links=links, answers=(0.1,)), 1e-2 * number)
        except RuntimeError as error:
            failed.append(error)

    threads = [threading.Thread(target=say, args=ends) for ends in (
        ('robot', 'box'), ('box', 'robot'), ('helper', 'robot'))]
    try:
        for thread in threads:
            thread.start()
        until = time.monotonic() + 2.0
        while time.monotonic() < until and not failed:
            assert live.look(1.0) and 'Mbit/s' in live.text(1.0)
            assert 0 <= live.statistics.missed_share <= 1 and not live.statistics.latency < 0
    finally:
        over.set()
        for thread in threads:
            thread.join()
    assert not failed


def test_an_operator_holds_a_plan_and_lets_it_go(costs: FleetCosts) -> None:
    live = LivePlanner(costs)
    first = live.plan(ALL, 0.0)
    reported, other = live.preview(None, ['box'], 0.0)
    assert other and 'box' not in other.devices and 'helper' in reported or 'robot' in reported
    assert live.look(0.1) == first, 'a preview changes nothing'
    live.hold()
    live.heard(beat('helper', 1, battery=0.01), 0.2)
    assert live.look(0.3) == first
    adapted = live.adapt(None, ['box'], 0.4)
    assert adapted and 'box' not in adapted.devices
    live.hold()
    assert live.plan(ALL, 0.5) == adapted, 'what an operator leaves out stays out'
    assert live.adapt(Quality(latency=costs.quality.latency * 2), [], 0.6)
    assert live.statistics.quality.latency == costs.quality.latency * 2


def test_answers_are_counted_with_misses_and_joules(costs: FleetCosts) -> None:
    live = LivePlanner(costs)
    live.plan(ALL, 0.0)
    assert math.isnan(live.statistics.latency)
    target = costs.quality.latency
    live.heard(beat('robot', 1, answers=(0.5 * target, 2 * target, math.inf)), 0.1)
    live.heard(beat('helper', 1, answers=(9.0,)), 0.1)
    seen = live.statistics
    assert (seen.frames, seen.missed, seen.latency) == (3, 2, 2 * target)
    assert seen.missed_share == pytest.approx(2 / 3)
    assert live.predicted
    assert seen.joules == pytest.approx(3 * sum(live.predicted.joules.values()))


def test_nothing_that_fits_is_reported(costs: FleetCosts) -> None:
    devices = tuple(replace(d, memory_bytes=1.0) for d in costs.topology.devices)
    live = LivePlanner(replace(costs, topology=replace(costs.topology, devices=devices)))
    why, none = live.preview(None, [], 0.0)
    assert none is None and 'MB' in why
    for now in (0.0, 9.0):  # at first, and when it is looked at again
        assert live.plan(ALL, now) is None and live.why == why
    assert live.text(9.0) == f'no plan: {why}'
    assert live.plan(ALL - {'robot'}, 10.0) is None and live.why == 'the source robot is not there'


def test_a_plan_without_its_source_says_so() -> None:
    planner = PipelinePlanner({'model': 'small_models:dense 1x3x64x96 uint8', 'source': 'robot',
                               'stages': 'robot,box', 'plan': '', 'qoe': ''})
    assert planner.plan(frozenset({'box'}), 0.0) is None
    assert planner.why == 'the source robot is not there'
