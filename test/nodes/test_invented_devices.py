# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""Devices that a stranger invents: with a key none is invited, without one none displaces."""
from __future__ import annotations

from collections.abc import Iterator

from fleets import cell, QUICK
import pytest

from intradp_ros.core.shared_key import SharedKey
from intradp_ros.msg import DeviceState
from intradp_ros.nodes.common.announcement_seals import check_sealed_name, sealed_name
from intradp_ros.runtime.member.fleet_coordinator import FleetCoordinator, MAX_DEVICES
from intradp_ros.runtime.member.planner import PlannerOf
from intradp_ros.runtime.transport.memory_network import MemoryNetwork

KEY = SharedKey.generate()
INVENTED = [f'x{number}' for number in range(3 * MAX_DEVICES)]


@pytest.fixture
def coordinator() -> Iterator[FleetCoordinator]:
    network = MemoryNetwork(cell())
    made = FleetCoordinator(network.join('coordinator'), PlannerOf('', lambda _: None), print,
                            times=QUICK)
    made.expect('ab')
    yield made
    made.close()
    network.close()


def hear(coordinator: FleetCoordinator, key: SharedKey | None, message: DeviceState) -> None:
    check_sealed_name(key, '/fleet', message)
    coordinator.invite(message.name)


def test_with_a_key_invented_names_are_refused(coordinator: FleetCoordinator) -> None:
    hear(coordinator, KEY, sealed_name(KEY, '/fleet', DeviceState(name='c')))
    known = tuple(coordinator._devices)
    assert known == ('a', 'b', 'c')
    true = sealed_name(KEY, '/fleet', DeviceState(name='c'))
    for name in INVENTED:
        for false in (DeviceState(name=name), DeviceState(name=name, mac=true.mac),
                      sealed_name(SharedKey.generate(), '/fleet', DeviceState(name=name)),
                      sealed_name(KEY, '/other', DeviceState(name=name))):
            with pytest.raises(ValueError, match='give it the same key_file'):
                hear(coordinator, KEY, false)
    assert tuple(coordinator._devices) == known


def test_without_a_key_invented_names_make_room_for_each_other(
        coordinator: FleetCoordinator) -> None:
    for name in INVENTED:
        hear(coordinator, None, DeviceState(name=name))
        assert len(coordinator._devices) <= MAX_DEVICES
    hear(coordinator, None, DeviceState(name='c'))
    assert {'a', 'b', 'c'} <= set(coordinator._devices)
    assert coordinator.expected == ('a', 'b')
