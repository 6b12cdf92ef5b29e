# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""
Whatever happens to a fleet in whatever order: one plan an epoch, and progress when faults end.

Processes die, start anew, stop and are cut off; messages are lost, doubled
and late; plans are prepared late, or not.
"""
from __future__ import annotations

from fleet_world import CANDIDATES, DEVICES, FleetWorld
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    initialize,
    rule,
    RuleBasedStateMachine,
    run_state_machine_as_test,
)

NAMES = st.sampled_from((*DEVICES, *CANDIDATES))
INDEX = st.integers(0, 10**6)


class Interleavings(RuleBasedStateMachine):
    """Rules draw what happens next."""

    def __init__(self) -> None:
        super().__init__()
        self.world = FleetWorld()

    @initialize(settled=st.booleans())
    def settle(self, settled: bool) -> None:
        if settled:
            self.world.heal()

    @rule(seconds=st.sampled_from([0.05, 0.2, 0.4, 1.2]))
    def advance(self, seconds: float) -> None:
        self.world.advance(seconds)

    @rule(times=st.integers(1, 8))
    def go_on(self, times: int) -> None:
        for _ in range(times):
            self.world.advance(0.15)
            self.world.deliver_all()
            self.world.load(0)

    @rule(index=INDEX, keep=st.booleans())
    def deliver(self, index: int, keep: bool) -> None:
        self.world.deliver(index, keep)

    @rule(indices=st.lists(INDEX, max_size=12))
    def deliver_some(self, indices: list[int]) -> None:
        for index in indices:
            self.world.deliver(index)

    @rule()
    def deliver_all(self) -> None:
        self.world.deliver_all()

    @rule(indices=st.lists(INDEX, max_size=12))
    def drop(self, indices: list[int]) -> None:
        for index in indices:
            self.world.drop(index)

    @rule(index=INDEX, well=st.booleans())
    def load(self, index: int, well: bool) -> None:
        self.world.load(index, well)

    @rule(name=NAMES)
    def kill(self, name: str) -> None:
        self.world.kill(name)

    @rule(name=NAMES)
    def leave(self, name: str) -> None:
        self.world.goodbye(name)

    @rule(name=NAMES)
    def start(self, name: str) -> None:
        self.world.start(name)

    @rule(name=NAMES)
    def stop_or_go_on(self, name: str) -> None:
        self.world.stopped ^= {name}

    @rule(name=NAMES)
    def cut_off_or_join(self, name: str) -> None:
        self.world.cut ^= {name}

    @rule(a=NAMES, b=NAMES)
    def part_or_join(self, a: str, b: str) -> None:
        self.world.apart ^= {frozenset((a, b))}

    @rule(name=st.sampled_from(sorted(CANDIDATES)))
    def part_from_other_candidates(self, name: str) -> None:
        self.world.apart |= {frozenset((name, other)) for other in CANDIDATES if other != name}

    @rule(source=st.sampled_from(DEVICES), frame=st.integers(0, 100))
    def ask(self, source: str, frame: int) -> None:
        self.world.ask(source, frame)

    def teardown(self) -> None:
        self.world.heal()
        assert_goes_on(self.world)


def assert_goes_on(world: FleetWorld) -> None:
    """One coordinates, the best; all devices run its plan, and a frame is answered by it."""
    (leader,) = world.leaders
    assert leader.election.name == 'c2'
    plan = leader.switch.in_use
    assert plan and plan.devices == set(DEVICES) and not leader.switch.broken
    assert {world.nodes[name].state.committed for name in DEVICES} == {plan.id}
    answers = len(world.answers)
    world.ask('d0', 10**6)
    assert world.answers[answers:] == [(plan.id, frozenset({plan.plan}))]


def run(examples: int, machine: type[Interleavings] = Interleavings) -> None:
    """Run so many random interleavings."""
    run_state_machine_as_test(machine, settings=settings(
        max_examples=examples, stateful_step_count=40,
        suppress_health_check=list(HealthCheck)))
