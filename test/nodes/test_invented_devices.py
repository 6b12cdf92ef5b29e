# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""Devices that a stranger invents: with a key none is invited, without one none displaces."""
from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import count

from fleets import cell, QUICK
import pytest
from waiting import wait_for

from intradp_ros.cluster.fleet_messages import (
    Claim,
    Committed,
    Goodbye,
    Heartbeat,
    Ready,
    Refused,
    Resign,
)
from intradp_ros.cluster.membership import Liveness, MAX_MEMBERS
from intradp_ros.cluster.terms import OWN_BITS, TOLD
from intradp_ros.core.shared_key import SharedKey
from intradp_ros.msg import DeviceState
from intradp_ros.nodes.common.announcement_seals import check_sealed_name, sealed_name
from intradp_ros.runtime.member.fleet_control import FleetMessage, to_control
from intradp_ros.runtime.member.fleet_coordinator import FleetCoordinator, MAX_DEVICES
from intradp_ros.runtime.member.planner import Planner, Proposal
from intradp_ros.runtime.transport.memory_network import MemoryNetwork

KEY = SharedKey.generate()
INVENTED = [f'x{number}' for number in range(3 * MAX_DEVICES)]


@dataclass(frozen=True)
class ToyPlan:
    participants: tuple[str, ...]

    def to_json(self) -> dict[str, list[str]]:
        return {'participants': [*self.participants]}


class ToyPlanner(Planner):
    """Plans for all that are there, and keeps what they said."""

    format = ''  # noqa: A003

    def __init__(self) -> None:
        self.said: dict[str, Heartbeat] = {}

    def plan(self, alive: frozenset[str], now: float) -> Proposal:
        return Proposal(ToyPlan(tuple(sorted(alive))))

    def heard(self, beat: Heartbeat, now: float) -> None:
        self.said[beat.device] = beat

    def forget(self, device: str) -> None:
        self.said.pop(device, None)


@pytest.fixture
def logged() -> list[str]:
    return []


@pytest.fixture
def coordinator(logged: list[str]) -> Iterator[FleetCoordinator]:
    network = MemoryNetwork(cell())
    made = FleetCoordinator(network.join('coordinator'), ToyPlanner(), logged.append, times=QUICK)
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


_NUMBERS = count(1)


def say(coordinator: FleetCoordinator, device: str, *messages: FleetMessage) -> None:
    for message in messages:
        coordinator.handle(device, to_control(message))


def beat(coordinator: FleetCoordinator, device: str, incarnation: int = 1, **more: object) -> None:
    say(coordinator, device, Heartbeat(device, incarnation, next(_NUMBERS), **more))


def until(done: Callable[[], object], work: Callable[[], None]) -> None:
    def look() -> object:
        work()
        return done()
    wait_for(look)


def test_a_device_that_is_no_candidate_takes_the_lead_from_nobody(
        coordinator: FleetCoordinator, logged: list[str]) -> None:
    coordinator.invite('c')
    wait_for(lambda: coordinator.leads)
    term = coordinator._state.election.term
    say(coordinator, 'c', Claim('c', 9, term + (1 << OWN_BITS)), Resign('c', term))
    assert coordinator.leads and coordinator._state.election.term == term
    assert coordinator.rejections.by_cause()['candidate'] == 2
    for _ in range(200):  # each tells of a term above the last
        beat(coordinator, 'c', term=coordinator._state.election.term + (1 << OWN_BITS))
    assert coordinator.rejections.by_cause().get('term', 0) >= 200 - TOLD - 1
    wait_for(lambda: coordinator.leads)
    assert len([line for line in logged if 'coordinates in term' in line]) < 4


def test_invented_devices_that_went_make_room_for_one_that_comes(
        coordinator: FleetCoordinator) -> None:
    for number in range(2 * MAX_MEMBERS):
        name = f'x{number}'
        coordinator.invite(name)
        beat(coordinator, name, battery=0.0, speed=2.0)
        say(coordinator, name, Goodbye(name))
        assert isinstance(coordinator.planner, ToyPlanner)
        assert len(coordinator.planner.said) <= MAX_MEMBERS
    coordinator.invite('c')
    until(lambda: 'c' in coordinator.alive, lambda: beat(coordinator, 'c'))
    assert len(coordinator.members.members) <= MAX_MEMBERS
    assert not coordinator.members.holds('x0', *Liveness)


def test_a_device_outside_a_plan_does_not_end_it(coordinator: FleetCoordinator) -> None:
    def work() -> None:
        switch = coordinator._state.switch
        held = [p.id for p in (switch.in_use, switch.next) if p]
        for name in 'ab':
            beat(coordinator, name, held=frozenset(held))
            if switch.next:
                say(coordinator, name, Ready(name, switch.next.id))
            elif switch.in_use:
                say(coordinator, name, Committed(name, switch.in_use.id))
    until(lambda: coordinator.plan == ToyPlan(('a', 'b')), work)
    coordinator.invite('x')
    say(coordinator, 'x', Refused('x', coordinator.id, 'no', coordinator.id.term, True))
    assert not coordinator._state.switch.broken
    say(coordinator, 'a', Refused('a', coordinator.id, 'lost', coordinator.id.term, True))
    assert coordinator._state.switch.broken


def test_a_device_that_starts_anew_and_refuses_without_end_writes_few_lines(
        coordinator: FleetCoordinator, logged: list[str]) -> None:
    refused, asked = 0, coordinator.id

    def work() -> None:
        nonlocal refused, asked
        beat(coordinator, 'a', refused + 1)
        following = coordinator._state.switch.next
        if following and following.id != asked:
            refused, asked = refused + 1, following.id
            say(coordinator, 'a', Refused('a', asked, f'reason {refused}', 0, True))
    until(lambda: refused == 6, work)
    assert len([line for line in logged if 'a refuses' in line]) <= 4
