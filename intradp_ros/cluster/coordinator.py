# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""
A candidate that coordinates a fleet: members, election and plans as one state machine.

Everything that happens is an event with its time; `step` returns what is
then, and what to do: messages to send, and `WantPlan` where the fleet needs
one, to be answered by an event `Propose`.
"""
from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from intradp_ros.cluster import election, membership, plan_switch
from intradp_ros.cluster.election import Election, ElectionTimes
from intradp_ros.cluster.fleet_messages import (
    Claim,
    Committed,
    Goodbye,
    Heartbeat,
    Outgoing,
    Ready,
    Refused,
    Reply,
    Resign,
)
from intradp_ros.cluster.membership import Change, Liveness, Membership, MemberTimes
from intradp_ros.cluster.plan_switch import PlanSwitch, SwitchTimes

#: Epochs above this are not learned of others: the next must fit into a frame.
FREE_EPOCHS = 1 << 30


@dataclass(frozen=True, slots=True)
class Tick:
    """Time has gone on; `aside`: another process of one's name is to coordinate."""

    aside: bool = False


@dataclass(frozen=True)
class Propose:
    """A planner's answer: a plan, its devices, and the boundary from which on it is used."""

    plan: Any
    devices: frozenset[str]
    boundary: int = 0


@dataclass(frozen=True, slots=True)
class WantPlan:
    """The fleet needs a plan that counts on these devices only."""

    alive: frozenset[str]


@dataclass(frozen=True, slots=True)
class CoordinatorTimes:
    """
    All times; a plan is wanted again `rest` seconds after the last was wanted.

    A device that refuses rests for `first`, and each time twice as long, up to `longest`; where no
    plan is in use up to `urgent`.
    """

    members: MemberTimes = MemberTimes()
    election: ElectionTimes = ElectionTimes()
    switch: SwitchTimes = SwitchTimes()
    rest: float = 0.5
    first: float = 1.0
    longest: float = 60.0
    urgent: float = 3.0


@dataclass(frozen=True, slots=True)
class Refusal:
    """A device could not prepare a plan: why, so many times in a row, since when it rests (s)."""

    reason: str
    times: int
    since: float
    incarnation: int


@dataclass(frozen=True)
class Coordinator:
    """
    What one candidate knows.

    `candidates` are the priorities of the devices that may coordinate, as
    declared; `planned` are the devices that were alive when a plan was last
    asked for, None where nothing came of it; `wanted` is when that was.
    `refusals` are those of devices that refused the last plan that they were asked to prepare.
    """

    election: Election
    candidates: Mapping[str, int] = field(default_factory=dict)
    membership: Membership = Membership()
    switch: PlanSwitch = PlanSwitch(0)
    planned: frozenset[str] | None = None
    wanted: float = float('-inf')
    refusals: Mapping[str, Refusal] = field(default_factory=dict)

    @property
    def leads(self) -> bool:
        """Whether this candidate coordinates the fleet."""
        return self.election.held


Event = Heartbeat | Goodbye | Claim | Resign | Reply | Propose | Tick
Action = Outgoing | WantPlan
Result = tuple[Coordinator, tuple[Action, ...]]


def step(state: Coordinator, event: Event, now: float,
         times: CoordinatorTimes = CoordinatorTimes()) -> Result:
    """Let something happen."""
    if isinstance(event, Heartbeat | Goodbye):
        return _hear(state, event, now, times)
    if isinstance(event, Claim):
        return _kept_election(replace(
            state, election=election.heard_claim(state.election, event, now, times.election)
        )), ()
    if isinstance(event, Resign):
        return replace(state, election=election.heard_resign(state.election, event)), ()
    if isinstance(event, Ready | Committed | Refused):
        return _reply(state, event, now)
    if isinstance(event, Propose):
        return _propose(state, event, now, times)
    return _tick(state, event, now, times)


def _hear(state: Coordinator, event: Heartbeat | Goodbye, now: float, times: CoordinatorTimes,
          ) -> Result:
    members, changes = membership.hear(state.membership, event, now, times.members)
    late = members is state.membership
    refusals = {name: refusal for name, refusal in state.refusals.items()
                if name in members.members}
    state, out = _changed(replace(state, membership=members, refusals=refusals), changes)
    if isinstance(event, Heartbeat) and not late:
        state = _kept_election(_learn(state, event))
    return state, out


def _learn(state: Coordinator, beat: Heartbeat) -> Coordinator:
    """Learn of terms and epochs that a device has heard of, and of plans that it lost."""
    switch = state.switch
    plan = switch.in_use
    if plan and beat.device in plan.answered and plan.id not in beat.held:
        switch = replace(switch, broken=True)
    # Another term's number is another plan's whatever its epoch, so that a false one ends nothing.
    epochs = (beat.committed.epoch, *(held.epoch for held in beat.held))
    switch = replace(switch, epoch=max((switch.epoch, *(e for e in epochs if e < FREE_EPOCHS))))
    refusal = state.refusals.get(beat.device)
    if refusal and refusal.incarnation != beat.incarnation:
        state = replace(state, refusals=_but(state.refusals, beat.device))
    return replace(state, switch=switch,
                   election=election.heard_term(state.election,
                                                max(beat.term, beat.committed.term)))


def _kept_election(state: Coordinator) -> Coordinator:
    """Forget all plans where another coordinates now: the orders are no longer one's own."""
    if not state.leads and state.switch.term:
        return replace(state, switch=PlanSwitch(0, state.switch.epoch))
    return state


def _changed(state: Coordinator, changes: tuple[Change, ...]) -> Result:
    out: tuple[Action, ...] = ()
    for change in changes:
        if change.after in (Liveness.GONE, Liveness.PROBATION):
            switch, orders = plan_switch.lost(state.switch, change.device)
            state, out = _switched(state, switch), out + orders
    return state, out


def _switched(state: Coordinator, switch: PlanSwitch) -> Coordinator:
    """Take a step of the switch; a plan that was given up is to be asked for anew."""
    given_up = state.switch.next and not switch.next and (
        switch.in_use is None or switch.in_use.id != state.switch.next.id)
    return replace(state, switch=switch, planned=None if given_up else state.planned)


def _reply(state: Coordinator, reply: Reply, now: float) -> Result:
    if isinstance(reply, Refused):
        state = _kept_election(replace(
            state, election=election.heard_term(state.election, reply.term)))
    asked = state.switch.next
    if asked and reply.id == asked.id and reply.device in asked.devices:
        state = _answered(state, reply, now)
    switch, out = plan_switch.answered(state.switch, reply, now)
    return _switched(state, switch), out


def _answered(state: Coordinator, reply: Reply, now: float) -> Coordinator:
    """Remember who could not prepare a plan, until it can."""
    if isinstance(reply, Ready):
        return replace(state, refusals=_but(state.refusals, reply.device))
    if not isinstance(reply, Refused) or not reply.unable:
        return state
    member, last = state.membership.members.get(reply.device), state.refusals.get(reply.device)
    refusal = Refusal(reply.reason, last.times + 1 if last else 1, now,
                      member.beat.incarnation if member else 0)
    return replace(state, refusals={**state.refusals, reply.device: refusal})


def resting(state: Coordinator, now: float, times: CoordinatorTimes = CoordinatorTimes(),
            ) -> frozenset[str]:
    """Return the devices that refused lately, and are not asked to prepare plans now."""
    runs = state.switch.in_use is not None and not state.switch.broken
    most = times.longest if runs else times.urgent
    return frozenset(
        name for name, refusal in state.refusals.items()
        if now - refusal.since < min(most, times.first * 2.0 ** min(refusal.times - 1, 32)))


def _but(refusals: Mapping[str, Refusal], device: str) -> dict[str, Refusal]:
    return {name: refusal for name, refusal in refusals.items() if name != device}


def _propose(state: Coordinator, event: Propose, now: float, times: CoordinatorTimes) -> Result:
    """Take a plan, unless another coordinates, a device has gone or rests, or it is in use."""
    plan = state.switch.in_use
    same = plan and plan.plan == event.plan and not state.switch.broken
    if not state.leads or same:
        return state, ()
    if not event.devices <= state.membership.alive - resting(state, now, times):
        return replace(state, planned=None), ()
    switch, out = plan_switch.propose(state.switch, event.plan, event.devices, now,
                                      event.boundary)
    return replace(state, switch=switch), out


def _tick(state: Coordinator, event: Tick, now: float, times: CoordinatorTimes) -> Result:
    members, changes = membership.watch(state.membership, now, times.members)
    state, out = _changed(replace(state, membership=members), changes)
    alive = state.membership.of(Liveness.ALIVE, Liveness.SUSPECT)
    held, said = election.campaign_step(
        state.election, {n: p for n, p in state.candidates.items() if n in alive}, now,
        times.election, aside=event.aside)
    state = _kept_election(replace(state, election=held))
    if said:
        out += (Outgoing('', said),)
    if not state.leads:
        return state, out
    if state.switch.term != held.term:
        state = replace(state, switch=PlanSwitch(held.term, state.switch.epoch), planned=None)
    switch, orders = plan_switch.remind(state.switch, now, times.switch)
    return _want(_switched(state, switch), out + orders, now, times)


def _want(state: Coordinator, out: tuple[Action, ...], now: float, times: CoordinatorTimes,
          ) -> Result:
    """
    Ask for a plan where there is none that all can run, or others are alive than before.

    It waits until no device is suspect: soon each is alive or gone.
    """
    alive = state.membership.alive - resting(state, now, times)
    suspect = state.membership.of(Liveness.SUSPECT)
    needed = state.switch.in_use is None or state.switch.broken or alive != state.planned
    rests = now - state.wanted < times.rest
    if state.switch.next or not needed or not alive or suspect or rests:
        return state, out
    return replace(state, wanted=now, planned=alive), (*out, WantPlan(alive))
