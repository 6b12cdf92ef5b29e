# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""Members, election and plans, one transition at a time."""
from __future__ import annotations

from fleet_world import DEVICES, FleetWorld, plan_at
import pytest

from intradp_ros.cluster import election, plan_holder
from intradp_ros.cluster.election import campaign_step, Election
from intradp_ros.cluster.fleet_messages import (
    Abort,
    Claim,
    Commit,
    Committed,
    Goodbye,
    Heartbeat,
    Prepare,
    Ready,
    Refused,
    Resign,
)
from intradp_ros.cluster.membership import (
    hear,
    Liveness,
    MAX_MEMBERS,
    Membership,
    MemberTimes,
    watch,
)
from intradp_ros.cluster.plan_holder import Load, on_order, PlanHolder
from intradp_ros.cluster.plan_id import PlanId

NOBODY = Membership()


def beaten(until: float, state: Membership = NOBODY, since: float = 0.0,
           incarnation: int = 1) -> Membership:
    for k in range(round((until - since) / 0.1) + 1):
        now = since + 0.1 * k
        state, _ = hear(state, Heartbeat('a', incarnation, round(10 * now) + 1), now)
    return state


def liveness(state: Membership) -> Liveness:
    return state.members['a'].liveness


def test_a_device_is_on_probation_alive_suspect_gone_and_back() -> None:
    state = beaten(0.4)
    assert liveness(state) is Liveness.PROBATION
    state = beaten(0.6)
    assert liveness(state) is Liveness.ALIVE
    state, changes = watch(state, 1.15)
    assert [c.after for c in changes] == [Liveness.SUSPECT]
    assert state.alive == frozenset()
    assert liveness(hear(state, Heartbeat('a', 1, 50), 1.2)[0]) is Liveness.ALIVE
    state, changes = watch(state, 1.7)
    assert [c.after for c in changes] == [Liveness.GONE]
    state, _ = hear(state, Heartbeat('a', 1, 51), 5.0)
    assert liveness(state) is Liveness.PROBATION
    assert liveness(beaten(6.0, state, 5.1)) is Liveness.ALIVE


def test_a_device_that_started_anew_is_on_probation_at_once() -> None:
    state, changes = hear(beaten(1.0), Heartbeat('a', 2, 1), 1.1)
    assert liveness(state) is Liveness.PROBATION
    assert [(c.before, c.after) for c in changes] == [(Liveness.ALIVE, Liveness.PROBATION)]


def test_pauses_on_probation_count_nothing() -> None:
    state = beaten(0.3)
    state, _ = hear(state, Heartbeat('a', 1, 50), 0.9)
    assert liveness(state) is Liveness.PROBATION
    assert state.members['a'].since == 0.9


def test_who_says_goodbye_is_gone_and_late_heartbeats_do_not_count() -> None:
    state = beaten(1.0)
    assert hear(state, Heartbeat('a', 1, 3), 1.1) == (state, ())
    state, changes = hear(state, Goodbye('a'), 1.1)
    assert liveness(state) is Liveness.GONE and len(changes) == 1
    assert hear(state, Goodbye('z'), 1.2) == (state, ())


def test_strangers_do_not_fill_the_memory() -> None:
    state = Membership()
    for k in range(MAX_MEMBERS + 5):
        state, _ = hear(state, Heartbeat(f'x{k}', 1, 1), 0.0)
    assert len(state.members) == MAX_MEMBERS and 'x0' in state.members
    state, _ = hear(state, Goodbye('x7'), 0.1)
    state, changes = hear(state, Heartbeat('a', 1, 1), 0.2)
    assert len(state.members) == MAX_MEMBERS and 'x7' not in state.members
    assert [change.device for change in changes] == ['a']


def test_times_must_be_in_order() -> None:
    with pytest.raises(ValueError, match='must grow'):
        MemberTimes(suspect=2.0, gone=1.0)


def test_the_best_candidate_claims_and_others_follow() -> None:
    a, claim = campaign_step(Election('a', 1, 7), {'b': 1}, 0.0)
    assert a.held and isinstance(claim, Claim)
    b, said = campaign_step(Election('b', 1, 8), {'a': 1}, 0.0)
    assert not b.held and said is None, 'of equals the first by name'
    b = election.heard_claim(b, claim, 0.1)
    assert b.holder == 'a'
    assert campaign_step(b, {}, 1.0)[1] is None, 'the lease holds'
    b, said = campaign_step(b, {}, 1.2)
    assert isinstance(said, Claim) and said.term > claim.term
    assert not election.heard_claim(a, said, 1.3).held
    assert election.heard_claim(b, claim, 1.3) == b, 'a lower term is refused'


def test_a_holder_hands_over_to_a_better_one_and_lets_go_when_it_was_stopped() -> None:
    a, claim = campaign_step(Election('a', 1, 7), {}, 0.0)
    after, said = campaign_step(a, {'b': 2}, 0.3)
    assert said == Resign('a', claim.term) and not after.held
    b = election.heard_resign(election.heard_claim(Election('b', 2, 8), claim, 0.1), said)
    assert campaign_step(b, {'a': 1}, 0.3)[0].held
    again, said = campaign_step(a, {}, 5.0)
    assert isinstance(said, Claim) and said.term > claim.term, 'a term is never taken up again'


def test_terms_of_two_processes_differ() -> None:
    terms = {election.next_term(Election(name, 1, k)) for name in 'ab' for k in range(50)}
    assert len(terms) == 100


def test_plans_are_prepared_then_used_from_a_boundary_on() -> None:
    first, second = PlanId(1, 1), PlanId(1, 2)
    holder, said = on_order(PlanHolder('a'), Prepare(first, 'p'))
    assert said == Load(first, 'p')
    _, said = on_order(holder, Commit(first))
    assert isinstance(said, Refused) and said.reason == 'it was not prepared'
    holder, said = plan_holder.loaded(holder, first)
    assert said == Ready('a', first)
    holder, said = on_order(holder, Commit(first))
    assert said == Committed('a', first)
    holder, _ = plan_holder.loaded(on_order(holder, Prepare(second, 'q'))[0], second)
    holder, _ = on_order(holder, Commit(second, boundary=10))
    assert (plan_at(holder, 9), plan_at(holder, 10)) == (first, second)
    assert holder.plan(first) == 'p', 'what is in flight ends with its plan'
    assert plan_holder.release_previous(holder).plan(first) is None
    assert on_order(holder, Commit(second))[1] == Committed('a', second)
    assert isinstance(on_order(holder, Commit(first))[1], Refused)


def test_orders_of_a_lower_term_are_refused() -> None:
    holder = plan_holder.heard_term(PlanHolder('a'), 5)
    for order in (Prepare(PlanId(4, 9), 'p'), Commit(PlanId(4, 9)), Abort(PlanId(4, 9))):
        after, said = on_order(holder, order)
        assert after == holder
        assert said == Refused('a', order.id, 'a higher term has begun', 5)


def test_what_was_aborted_is_forgotten_and_what_failed_is_reported() -> None:
    id_ = PlanId(1, 1)
    holder, _ = on_order(PlanHolder('a'), Prepare(id_, 'p'))
    assert plan_holder.failed(holder, id_, 'no memory')[1] == Refused(
        'a', id_, 'no memory', 1, True)
    holder, _ = on_order(holder, Abort(id_))
    assert plan_holder.loaded(holder, id_) == (holder, None)


def settled() -> FleetWorld:
    world = FleetWorld()
    world.heal()
    return world


def test_a_plan_without_a_dead_device_follows_within_seconds() -> None:
    world = settled()
    (leader,) = world.leaders
    before = leader.switch.in_use.id
    world.kill('d1')
    for _ in range(20):
        world.advance(0.1)
        world.deliver_all()
        world.load(0)
        world.load(0)
        world.deliver_all()
    (leader,) = world.leaders
    assert leader.switch.in_use.devices == {'d0', 'd2'}
    assert leader.switch.in_use.id > before
    assert leader.switch.in_use.id.term == before.term


def test_a_dead_coordinator_is_followed_by_the_next_of_the_rule() -> None:
    world = settled()
    before = world.leaders[0].switch.in_use.id
    world.kill('c2')
    for _ in range(40):
        world.advance(0.1)
        world.deliver_all()
        while world.loads:
            world.load(0)
            world.deliver_all()
    (leader,) = world.leaders
    assert leader.election.name == 'c0'
    assert leader.switch.in_use.id.term > before.term
    assert leader.switch.in_use.id.epoch > before.epoch
    assert {world.nodes[n].state.committed for n in DEVICES} == {leader.switch.in_use.id}


def test_while_a_plan_does_not_get_ready_the_old_one_goes_on() -> None:
    world = settled()
    (leader,) = world.leaders
    before = leader.switch.in_use.id
    world.kill('d2')
    for _ in range(230):
        world.advance(0.1)
        world.deliver_all()
    (leader,) = world.leaders
    assert leader.switch.in_use.id == before
    assert leader.switch.next is not None and leader.switch.next.id.epoch > before.epoch + 1
    assert plan_at(world.nodes['d0'].state, 0) == before
