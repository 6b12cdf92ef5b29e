# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import pytest

from intradp_ros.cluster.device import Device
from intradp_ros.cluster.topology import (
    behind_access_point,
    dedicated_links,
    Medium,
    ring,
    Topology,
)

A, B, C, D = (Device(name) for name in 'abcd')


def test_stations_cross_the_air_twice_and_a_cable_once() -> None:
    topology = behind_access_point((A, B, C), 2.5e6, 0.001, wired='c')
    assert topology.path('a', 'b') == ('air', 'air')
    assert topology.path('a', 'c') == ('air', 'c.down')
    assert topology.path('c', 'a') == ('c.up', 'air')
    assert topology.delay('a', 'b') == 0.002
    assert topology.path('a', 'a') == ()


def test_rings_take_the_shorter_way_round() -> None:
    topology = ring((A, B, C, D), 1e6)
    assert topology.path('a', 'c') == ('a>b', 'b>c')
    assert topology.path('a', 'd') == ('a>d',)
    assert len(topology.media) == 8
    assert ring((A, B), 1e6).path('b', 'a') == ('b>a',)


def test_dedicated_links_are_shared_by_none() -> None:
    topology = dedicated_links((A, B, C), 1e6, 0.001)
    paths = list(topology.paths.values())
    assert len(set(paths)) == len(topology.media) == 6
    assert topology.path('a', 'c') == ('a>c',) and topology.delay('a', 'c') == 0.001


def test_devices_may_go() -> None:
    left = ring((A, B, C), 1e6).without(['b'])
    assert left.names == ('a', 'c')
    assert left.path('a', 'c') == ('a>c',)
    with pytest.raises(ValueError, match="no device 'b'; there are a, c"):
        left.device('b')


@pytest.mark.parametrize('parts, message', [
    (((A, A), (), {}), "name of its own, got 'a' twice"),
    (((A,), (Medium('air', 0.0),), {}), 'a rate above 0'),
    (((A,), (Medium('air', float('nan')),), {}), 'a rate above 0'),
    (((A, B), (), {('a', 'b'): ('air',)}), "no medium 'air'"),
    (((A,), (), {('a', 'z'): ()}), "no device 'z'"),
    (((Device('a', disk='ssd'),), (), {}), "no medium 'ssd'")])
def test_what_does_not_fit_together_is_refused(parts: tuple, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Topology(*parts)
