# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import math

import pytest

from intradp_ros.cluster.device import Device
from intradp_ros.cluster.network_state import NetworkState
from intradp_ros.cluster.topology import behind_access_point, ring
from intradp_ros.link.predictor import LastValue
from intradp_ros.schedule.event_simulator import simulate
from intradp_ros.schedule.task_graph import TaskGraph, TransferTask

A, B, C, D = (Device(name) for name in 'abcd')
CELL = behind_access_point((A, B, C), 10e6, 2e-3, wired='c')


def test_what_was_not_measured_is_as_declared() -> None:
    state = NetworkState(CELL)
    found = state.rate('a', 'b', 5.0)
    assert (found.value, found.measured) == (5e6, False)
    assert state.delay('a', 'b', 5.0).value == 4e-3
    assert state.medium('air', 5.0).value == 10e6
    assert state.topology(5.0) == CELL
    assert state.rate('a', 'a', 0.0).value == math.inf


def test_a_transfer_shows_its_path_and_the_medium_that_holds_it_back() -> None:
    state = NetworkState(CELL, LastValue)
    state.transferred('a', 'c', 4e6, 1.0)
    assert state.rate('a', 'c', 1.5).value == 4e6
    assert state.rate('a', 'c', 1.5).age == 0.5
    assert state.medium('air', 1.0).value == 4e6
    assert not state.medium('c.down', 1.0).measured
    assert state.rate('b', 'c', 1.0).value == 4e6, 'what is known of the air counts for others'
    assert state.rate('a', 'b', 1.0).value == 2e6, 'which cross it twice'
    assert state.topology(1.0).medium('air').bytes_per_second == 4e6


def test_transfers_that_share_the_air_tell_what_it_gives_together() -> None:
    """The rates are those of the simulator, of an air that gives 6 MB/s, not the 10 declared."""
    true = behind_access_point((A, B, C), 6e6, wired='c')
    flows = (('a', 'c'), ('b', 'c'), ('a', 'b'))
    found = simulate(TaskGraph(tuple(TransferTask(*ends, 1e6) for ends in flows)), true)
    state = NetworkState(CELL, LastValue)
    for ends, seconds in zip(flows, found.finish):
        state.transferred(*ends, 1e6 / seconds, 1.0)
    assert state.medium('air', 1.0).value == pytest.approx(6e6)
    assert state.rate('c', 'a', 1.0).value == pytest.approx(6e6)


def test_what_is_old_is_reported_and_falls_to_the_lowest() -> None:
    state = NetworkState(CELL, LastValue)
    for now, rate in ((0.0, 2e6), (1.0, 8e6)):
        state.transferred('a', 'c', rate, now)
    assert state.rate('a', 'c', 1.1).spread > 0.5
    old = state.rate('a', 'c', 101.0)
    assert old.age == 100.0
    assert old.value == pytest.approx(2e6)


def test_probes_tell_delays_of_paths_and_media() -> None:
    state = NetworkState(CELL)
    for k, trip in enumerate((0.02, 0.01, 0.03)):
        state.probed('a', 'c', trip, k * 1.0)
    assert state.delay('c', 'a', 2.5).value == 0.005
    assert state.delay('a', 'c', 2.5).age == 0.5
    assert state.topology(2.5).medium('air').delay == 0.005
    bare = NetworkState(ring((A, B, C, D), 1e6))
    bare.probed('a', 'c', 0.008, 0.0)
    assert bare.topology(0.0).medium('a>b').delay == 0.002


def test_old_probes_are_forgotten() -> None:
    state = NetworkState(CELL, memory=5.0)
    state.probed('a', 'c', 0.01, 0.0)
    state.probed('a', 'c', 0.04, 6.0)
    assert state.delay('a', 'c', 6.0).value == 0.02


def test_the_oldest_paths_are_probed_first() -> None:
    state = NetworkState(behind_access_point((A, B), 1e6))
    assert state.due(0.0, 1.0) == (('a', 'b'), ('b', 'a'))
    state.transferred('b', 'a', 1e6, 1.0)
    assert state.due(1.5, 1.0) == (('a', 'b'),)
    assert state.due(3.0, 1.0) == (('a', 'b'), ('b', 'a'))


@pytest.mark.parametrize('value', [0.0, -1.0, math.inf, math.nan])
def test_what_is_no_measurement_says_nothing(value: float) -> None:
    state = NetworkState(CELL)
    state.transferred('a', 'c', value, 0.0)
    state.probed('a', 'c', value, 0.0)
    assert state.topology(0.0) == CELL
