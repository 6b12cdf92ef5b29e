# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""
The toy in a fleet to which anything happens in any order: its state is right, and it ends.

The real role, with the real state machines of members and coordinators; only threads,
transport and time are the world's.
"""
from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cache
from types import SimpleNamespace
from typing import Any

from fleet_world import CANDIDATES, DEVICES, FleetWorld, Node
from interleavings import Interleavings, run
import pytest
import torch
from toy_system import advance, HALVES, step_input, ToyPlanner, ToyRole, WIDTH

from intradp_ros.cluster.coordinator import Propose, WantPlan
from intradp_ros.cluster.fleet_messages import Heartbeat
from intradp_ros.wire.frames import MalformedFrameError

STEPS = 12


class Inline:
    """Work that is done at once."""

    def put(self, work: Callable[[], None]) -> None:
        work()

    def close(self) -> None:
        pass


class ToyWorld(FleetWorld):
    """Devices have the toy's role; its frames are messages among the others."""

    def __init__(self) -> None:
        self.roles: dict[str, ToyRole] = {}
        self.planners = {name: ToyPlanner('d0') for name in CANDIDATES}
        super().__init__()

    def start(self, name: str) -> None:
        super().start(name)
        if name in DEVICES:
            channel = SimpleNamespace(
                chunk_bytes=lambda peer: 1 << 16,
                send=lambda peer, frame: self._send(name, peer, (name, frame)))
            self.roles[name] = ToyRole(SimpleNamespace(name=name, channel=channel), STEPS,
                                       lambda step: None, Inline())

    def load(self, index: int, well: bool = True) -> None:
        """Load a plan, where the state that it lacks is to be had."""
        if not self.loads:
            return
        name, incarnation, id_ = self.loads[index % len(self.loads)]
        node, role = self.nodes.get(name), self.roles[name]
        if node and node.incarnation == incarnation and id_ in node.state.loading:
            plan = self.contents[id_][3]
            lacking = role.lacking(plan)
            for half, tag in lacking.state:
                found = [self.roles[other].state.get(half, tag)
                         for other in {*plan.participants, *lacking.peers} if other in self.nodes]
                tensor = next((tensor for tensor in found if tensor is not None), None)
                well = well and tensor is not None
                if tensor is not None:
                    role.state.put(half, tag, tensor)
            if well:
                role.load(id_, plan)
        super().load(index, well)

    def _beat(self, node: Node) -> None:
        if node.name in DEVICES:
            self.roles[node.name].busy()
        super()._beat(node)

    def _send(self, sender: str, target: str, message: Any) -> None:
        if isinstance(message, Heartbeat) and sender in DEVICES:
            tags = self.roles[sender].state.tags()
            message = replace(message, tags={half: found[-1] for half, found in tags.items()})
        super()._send(sender, target, message)

    def _take(self, target: str, message: Any) -> None:
        if target in self.nodes and isinstance(message, Heartbeat):
            self.planners[target].heard(message, self.now)
        if isinstance(message, tuple):
            if target in self.nodes and target not in self.stopped | self.cut:
                try:
                    self.roles[target].handle(*message)
                except MalformedFrameError as error:
                    assert error.cause == 'unexpected'  # of a plan that is over
        else:
            super()._take(target, message)

    def _plan(self, node: Node, wanted: WantPlan) -> None:
        alive = frozenset(name for name in wanted.alive if name in DEVICES)
        self.planners[node.name].swapped = len(self.contents) % 2 == 1
        if found := self.planners[node.name].plan(alive, self.now):
            self._step(node, Propose((node.name, alive, len(self.contents), found.plan), alive,
                                     found.boundary))

    def _held(self, node: Node, result: Any) -> None:
        before = node.state.committed
        super()._held(node, result)
        role = self.roles[node.name]
        role.keep((*node.state.held, *node.state.loading))
        if node.state.committed != before:
            role.use(node.state.committed, node.state.boundary)


@cache
def one_process() -> tuple[tuple[torch.Tensor, torch.Tensor], ...]:
    states = [(torch.zeros(WIDTH), torch.zeros(WIDTH))]
    for step in range(1, STEPS + 1):
        first = advance(0, states[-1][0], step_input(step))
        states.append((first, advance(1, states[-1][1], first)))
    return tuple(states)


class ToyInterleavings(Interleavings):
    """The same rules, with the toy at work."""

    world: ToyWorld

    def __init__(self) -> None:
        super().__init__()
        self.world = ToyWorld()

    def teardown(self) -> None:
        super().teardown()
        found = [role.state.tags() for role in self.world.roles.values()]
        assert {max(tags[half][-1] for tags in found) for half in HALVES} == {STEPS}
        for role in self.world.roles.values():
            for half, tags in role.state.tags().items():
                for tag in tags:
                    assert torch.equal(role.state.get(half, tag),
                                       one_process()[tag][HALVES.index(half)])


def test_the_toy_is_right_whatever_happens() -> None:
    run(15, ToyInterleavings)


@pytest.mark.slow
def test_the_toy_is_right_in_two_thousand_interleavings() -> None:
    run(2000, ToyInterleavings)
