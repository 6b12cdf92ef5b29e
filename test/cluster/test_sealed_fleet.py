# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""
A fleet with a key against strangers who recorded everything, restarts, clocks and full disks.

In any order, in model time: what strangers say changes nothing, answers are exact, and
5 s after the last fault all devices that can take part run one plan.
"""
from __future__ import annotations

from hypothesis import given, HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import rule, RuleBasedStateMachine, run_state_machine_as_test
import pytest
from sealed_fleet import CANDIDATES, DEVICES, FULL, KEY, NAMES, SealedFleet

from intradp_ros.cluster.fleet_messages import Claim, Goodbye, Heartbeat
from intradp_ros.cluster.plan_id import NO_PLAN
from intradp_ros.core.shared_key import SharedKey
from intradp_ros.dds.convert import control_to_message
from intradp_ros.dds.sealer import Sealer
from intradp_ros.runtime.member.fleet_control import to_control

BACK = 5.0


def settled() -> SealedFleet:
    fleet = SealedFleet()
    fleet.go_on(BACK)
    assert_runs(fleet)
    return fleet


def assert_runs(fleet: SealedFleet, without: frozenset[str] = frozenset()) -> None:
    """See that the best candidate coordinates, and all devices but these run its plan."""
    leaders = [n for n in CANDIDATES if n in fleet.running and fleet.running[n].state.leads]
    assert leaders == ['k']
    assert not fleet.running['k'].namesake.aside
    fleet.asks_and_runs('k', without)


class Faults(RuleBasedStateMachine):
    """Rules draw what happens next; every recording stays with the stranger."""

    def __init__(self) -> None:
        super().__init__()
        self.fleet, self.frame = SealedFleet(), 0

    @rule(seconds=st.sampled_from([0.1, 0.3, 1.0, 2.5]))
    def go_on(self, seconds: float) -> None:
        self.fleet.go_on(seconds)

    @rule(name=st.sampled_from(NAMES), seconds=st.sampled_from([0.0, 0.3, 2.0]))
    def restart(self, name: str, seconds: float) -> None:
        self.fleet.kill(name)
        self.fleet.go_on(seconds)
        self.fleet.start(name)

    @rule(name=st.sampled_from(NAMES), politely=st.booleans())
    def end(self, name: str, politely: bool) -> None:
        (self.fleet.leave if politely else self.fleet.kill)(name)

    @rule(name=st.sampled_from(NAMES))
    def stop_or_go_on(self, name: str) -> None:
        self.fleet.stopped ^= {name}

    @rule(name=st.sampled_from(NAMES), back=st.sampled_from([1e3, 9e5]))
    def set_clock_back(self, name: str, back: float) -> None:
        self.fleet.clock[name] -= back

    @rule(name=st.sampled_from(DEVICES))
    def fill_or_empty_disk(self, name: str) -> None:
        self.fleet.full ^= {name}

    @rule(first=st.integers(0, 10**6), steps=st.lists(st.integers(0, 500), max_size=40))
    def replay(self, first: int, steps: list[int]) -> None:
        for step in steps:
            first += step
            self.fleet.replay(first)

    @rule()
    def replay_all_of_late(self) -> None:
        for back in range(200, 0, -1):
            self.fleet.replay(len(self.fleet.recorded) - back)

    @rule()
    def ask(self) -> None:
        self.frame += 1
        self.fleet.ask(self.frame)

    def teardown(self) -> None:
        fleet = self.fleet
        fleet.stopped.clear()
        fleet.full.clear()
        for name in NAMES:
            if name not in fleet.running:
                fleet.start(name)
        for _ in range(10):
            fleet.go_on(BACK / 10)
            for back in (1, 3, 100, 1000):
                fleet.replay(len(fleet.recorded) - back)
        assert_runs(fleet)


def run(examples: int, steps: int) -> None:
    run_state_machine_as_test(Faults, settings=settings(
        max_examples=examples, stateful_step_count=steps, deadline=None,
        suppress_health_check=list(HealthCheck)))


def test_faults_and_strangers_in_any_order() -> None:
    run(12, 12)


@pytest.mark.slow
def test_faults_and_strangers_in_a_thousand_orders() -> None:
    run(1000, 40)


@pytest.mark.parametrize('back', [0.0, 1e3, 9e5])
@pytest.mark.parametrize('name', NAMES)
def test_a_clock_that_went_back_locks_nobody_out(name: str, back: float) -> None:
    fleet = settled()
    fleet.clock[name] -= back
    fleet.kill(name)
    fleet.go_on(0.5)
    fleet.start(name)
    fleet.go_on(BACK)
    assert_runs(fleet)


def test_recordings_of_another_run_are_worth_nothing() -> None:
    """All of a former run, after all have started anew, in the order in which it was said."""
    fleet = settled()
    recorded = list(fleet.recorded)
    for name in NAMES:
        fleet.start(name)
    for sender, target, message in recorded[:1500]:
        fleet.forge(target, sender, message)
    assert all(not fleet.running[n].state.membership.members for n in CANDIDATES)
    fleet.go_on(0.3)
    for sender, target, message in recorded[::3]:
        fleet.forge(target, sender, message)
    fleet.go_on(BACK)
    assert_runs(fleet)


def test_a_device_whose_disk_is_full_is_left_out_for_growing_times_and_comes_back() -> None:
    fleet = settled()
    fleet.full.add('c')
    fleet.kill('c')
    fleet.go_on(2.0)
    fleet.start('c')
    fleet.go_on(BACK)
    assert_runs(fleet, frozenset('c'))
    state = fleet.running['k'].state
    assert state.refusals['c'].reason == FULL
    epoch = state.switch.epoch
    fleet.go_on(60.0)
    # Asked 2, 4, 8, 16, 32 s apart, each time with a plan for the others after it.
    assert fleet.running['k'].state.switch.epoch - epoch <= 12
    assert_runs(fleet, frozenset('c'))
    fleet.full.clear()
    fleet.go_on(65.0)
    assert_runs(fleet)
    assert not fleet.running['k'].state.refusals


def test_the_device_that_asks_and_refuses_is_asked_again_soon() -> None:
    """Without it there is no plan, so it never rests long."""
    fleet = SealedFleet()
    fleet.full.add('a')
    fleet.go_on(30.0)
    assert fleet.running['a'].state.committed == NO_PLAN
    fleet.full.clear()
    fleet.go_on(BACK)
    assert_runs(fleet)


@pytest.mark.parametrize('term', [2**62 - 1, 2**62 - 2**33, 2**61 + 2**50])
def test_a_term_near_the_highest_ends_nothing(term: int) -> None:
    """Said by one that has the key, in a claim and in a heartbeat."""
    fleet = settled()
    before = fleet.running['k'].state.switch.in_use
    for name in DEVICES:
        for candidate in CANDIDATES:
            fleet.say(fleet.running[candidate], name, to_control(Claim(candidate, 9, term)))
            fleet.say(fleet.running[name], candidate, to_control(
                Heartbeat(name, 1, 1, term=term)))
    fleet.go_on(0.1)
    assert fleet.running['k'].state.switch.in_use == before
    fleet.kill('k')
    fleet.go_on(0.5)
    fleet.start('k')
    fleet.go_on(BACK)
    assert_runs(fleet)


def test_strangers_without_the_key_change_nothing() -> None:
    fleet = settled()
    before = {n: fleet.running[n].state for n in DEVICES}
    for key in (None, SharedKey.generate(), KEY):
        for target, peer in (('a', 'k'), ('b', 'k'), ('c', 'm')):
            sealer = Sealer(key, 'down' if target < peer else 'up', 'up')
            message = control_to_message(to_control(Claim(peer, 9, 2**40)), 2**40)
            message.server = fleet.running[target].ends[peer].meeting.connection
            fleet.forge(target, peer, sealer.seal(message))
    assert before == {n: fleet.running[n].state for n in DEVICES}
    assert_runs(fleet)


@given(cut=st.sets(st.tuples(st.sampled_from(('k', 'twin')), st.sampled_from(DEVICES))),
       seed=st.integers(0, 10**6), apart=st.floats(0.0, 4.0), politely=st.booleans(),
       devices=st.lists(st.sampled_from(DEVICES), max_size=3), first=st.booleans(),
       replays=st.lists(st.integers(0, 10**6), max_size=20))
@settings(max_examples=12, deadline=None)
def test_of_two_coordinators_of_one_name_one_plans(
        cut: set[tuple[str, str]], seed: int, apart: float, politely: bool, devices: list[str],
        first: bool, replays: list[int]) -> None:
    """Whenever they start, whatever starts anew; the other knows, and takes over when it ends."""
    fleet = SealedFleet(seed)
    for name in (*DEVICES, 'k'):
        fleet.kill(name)
    if first:  # devices run before, else all start together
        for name in DEVICES:
            fleet.start(name)
        fleet.go_on(1.0)
    fleet.cut = cut
    fleet.start('k')
    fleet.go_on(apart)
    fleet.start('k', 'twin')
    for name in DEVICES:
        if name not in fleet.running:
            fleet.start(name)
            fleet.go_on(seed % 5 / 10)
    fleet.go_on(2.0)
    fleet.cut = set()
    for name in devices:
        fleet.start(name)
        fleet.go_on(0.5)
    for number in replays:
        fleet.replay(number)
    fleet.go_on(15.0)
    before = fleet.switches
    fleet.go_on(5.0)
    twins = {place: fleet.running[place] for place in ('k', 'twin')}
    (leader,) = (place for place, twin in twins.items() if twin.state.leads)
    (other,) = twins.keys() - {leader}
    assert fleet.switches == before, 'devices stay with one'
    assert twins[other].namesake.aside
    assert {m.meeting.conflict(fleet.now + twins[other].offset)
            for name, m in twins[other].ends.items() if name in DEVICES} == {'own'}
    fleet.asks_and_runs(leader)
    if politely:
        for peer in twins[leader].ends:
            fleet.say(twins[leader], peer, to_control(Goodbye('k')))
    fleet.kill(leader)
    fleet.go_on(15.0)
    assert not twins[other].namesake.aside
    fleet.asks_and_runs(other)
