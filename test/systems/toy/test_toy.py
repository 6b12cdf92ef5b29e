# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""A toy system on a fleet: a switch, a death and a return later it has what one process has."""
from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
import threading

from fleets import cell, QUICK, TIMEOUT
import pytest
import torch
from toy_system import advance, HALVES, step_input, ToyPlan, ToyPlanner, ToyRole, WIDTH
from waiting import wait_for

from intradp_ros.dds.dds_peers import DdsPeers
from intradp_ros.dds.standalone import standalone_context
from intradp_ros.runtime.member.fleet_coordinator import FleetCoordinator
from intradp_ros.runtime.member.fleet_member import FleetMember
from intradp_ros.runtime.transport.memory_network import MemoryNetwork
from intradp_ros.runtime.transport.peer_channel import PeerChannel
from intradp_ros.runtime.weights.exchange import WeightPolicy

STEPS = 100


def one_process() -> list[tuple[torch.Tensor, torch.Tensor]]:
    """Return both halves of the state after each step."""
    states = [(torch.zeros(WIDTH), torch.zeros(WIDTH))]
    for step in range(1, STEPS + 1):
        first = advance(0, states[-1][0], step_input(step))
        states.append((first, advance(1, states[-1][1], first)))
    return states


def of_toy(member: FleetMember) -> ToyPlan:
    """Return the plan that a device uses."""
    assert isinstance(member.plan, ToyPlan)
    return member.plan


class Memory:
    """A network in memory; a device that was killed comes back on the same channel."""

    def __init__(self) -> None:
        self.network = MemoryNetwork(cell(devices='ab'))

    def join(self, name: str) -> PeerChannel:
        self.network.restore(name)
        return self.network.join(name) if name not in 'ab' else self.network.channel(name)

    def kill(self, member: FleetMember) -> None:
        self.network.cut(member.name)
        member.close()

    def close(self) -> None:
        self.network.close()


class Dds:
    """Channels over DDS, all in this process."""

    def __init__(self) -> None:
        self.stack = ExitStack()
        self.context = self.stack.enter_context(standalone_context())

    def join(self, name: str) -> PeerChannel:
        channel = DdsPeers(self.context, 'toys', name)
        self.stack.callback(channel.close)
        return channel

    def kill(self, member: FleetMember) -> None:
        member.channel.close()
        member.close()

    def close(self) -> None:
        self.stack.close()


@pytest.fixture(params=[Memory, Dds])
def network(request: pytest.FixtureRequest) -> Iterator[Memory | Dds]:
    made = request.param()
    yield made
    made.close()


class Gate:
    """Lets steps finish up to a number only."""

    def __init__(self) -> None:
        self.finished = self.limit = 0
        self.changed = threading.Condition()

    def __call__(self, step: int) -> None:
        with self.changed:
            self.finished = step
            self.changed.notify_all()
            self.changed.wait_for(lambda: step < self.limit, TIMEOUT)

    def open(self, limit: int) -> None:
        """Wait until a step has finished; no further one begins."""
        with self.changed:
            self.limit = limit
            self.changed.notify_all()
            assert self.changed.wait_for(lambda: self.finished == limit, TIMEOUT), self.finished


def test_a_state_survives_a_switch_a_death_and_a_return_to_the_last_bit(
        network: Memory | Dds) -> None:
    gate, planner = Gate(), ToyPlanner('a')

    def member(name: str) -> FleetMember:
        return FleetMember(
            network.join(name), [lambda host: ToyRole(host, STEPS, gate)], print,
            heartbeat=QUICK.members.heartbeat, weights=WeightPolicy(serves=True))

    coordinator = FleetCoordinator(network.join('coordinator'), planner, print, times=QUICK)
    a, b = member('a'), member('b')
    coordinator.expect('ab')

    def go(step: int) -> None:
        """Take steps up to a number, and wait until the planner knows of them."""
        gate.open(step)
        wait_for(lambda: planner.plan(frozenset('a'), 0.0).boundary == step + 1)

    go(20)
    assert a.plan == ToyPlan('a', 'b', 'a', 0, 'a b')

    planner.swapped = True  # the halves change places: each device lacks the state of its new one
    found = planner.plan(coordinator.alive, 0.0)
    coordinator.propose(found.plan, found.boundary)
    wait_for(lambda: of_toy(a).first == of_toy(b).first == 'b')
    assert of_toy(a).after == 20
    go(45)

    network.kill(b)  # it goes without a word, and with all that it alone had
    wait_for(lambda: a.plan.participants == ('a',))
    go(60)

    b = member('b')
    wait_for(lambda: b.plan and b.plan == a.plan)
    go(STEPS)
    moved = [tag for tag in b.roles['toy/1'].state.tags()['first'] if tag]
    assert moved[0] == of_toy(b).after == 60, 'steps before the plan came as state'

    wanted = one_process()
    for one in (a, b):
        state = one.roles['toy/1'].state
        for half, tags in state.tags().items():
            assert tags[-1] == STEPS or one is b
            for tag in tags:
                assert torch.equal(state.get(half, tag), wanted[tag][HALVES.index(half)])
    gate.limit = STEPS + 1
    for one in (a, b, coordinator):
        one.close()
