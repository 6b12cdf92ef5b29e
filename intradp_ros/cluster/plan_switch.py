# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""
Changing plans, the coordinator's side: PREPARE, READY from all, COMMIT; or ABORT.

The last READY decides: from then on the plan is the one in use, and COMMIT is
sent again to every device until it says that it runs it.  A plan that is not
decided in time, is refused, or loses a device is given up, and the one before
it goes on.  No epoch is ever used twice.
"""
from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from intradp_ros.cluster.fleet_messages import (
    Abort,
    Commit,
    Committed,
    Order,
    Outgoing,
    Prepare,
    Ready,
    Refused,
    Reply,
)
from intradp_ros.cluster.plan_id import PlanId


@dataclass(frozen=True, slots=True)
class SwitchTimes:
    """Seconds: orders are sent again every `again`; what is not ready after `preparing` ends."""

    again: float = 0.2
    preparing: float = 20.0


@dataclass(frozen=True)
class Proposal:
    """A plan, its devices, and which of them have answered its last order."""

    id: PlanId  # noqa: A003
    plan: Any
    devices: frozenset[str]
    since: float
    sent: float
    answered: frozenset[str] = frozenset()
    boundary: int = 0

    @property
    def missing(self) -> frozenset[str]:
        """The devices that have not answered."""
        return self.devices - self.answered


@dataclass(frozen=True)
class PlanSwitch:
    """
    A coordinator's plans: the one `in_use`, and the one that is being prepared (`next`).

    `epoch` is the highest heard of or given.  `broken` means that a
    device cannot run the plan in use, which needs another.
    """

    term: int
    epoch: int = 0
    in_use: Proposal | None = None
    next: Proposal | None = None  # noqa: A003
    broken: bool = False


Result = tuple[PlanSwitch, tuple[Outgoing, ...]]


def propose(switch: PlanSwitch, plan: Any, devices: frozenset[str], now: float,
            boundary: int = 0) -> Result:
    """Begin to prepare a plan on some devices; one that is being prepared is given up."""
    switch, out = give_up(switch)
    id_ = PlanId(switch.term, switch.epoch + 1)
    proposal = Proposal(id_, plan, devices, now, now, boundary=boundary)
    return (replace(switch, epoch=id_.epoch, next=proposal),
            out + _to(devices, Prepare(id_, plan)))


def give_up(switch: PlanSwitch) -> Result:
    """Abort what is being prepared; the plan in use goes on."""
    if switch.next is None:
        return switch, ()
    return (replace(switch, next=None),
            _to(switch.next.devices, Abort(switch.next.id)))


def answered(switch: PlanSwitch, reply: Reply, now: float) -> Result:
    """Take a device's answer; those to other plans than these two are of the past."""
    if switch.next and reply.id == switch.next.id and reply.device in switch.next.devices:
        if isinstance(reply, Refused):
            return give_up(switch)
        if isinstance(reply, Ready):
            return _ready(switch, switch.next, reply.device, now)
    elif switch.in_use and reply.id == switch.in_use.id \
            and reply.device in switch.in_use.devices:
        if isinstance(reply, Refused):
            return replace(switch, broken=True), ()
        if isinstance(reply, Committed):
            done = switch.in_use.answered | {reply.device}
            return replace(switch, in_use=replace(switch.in_use, answered=done)), ()
    return switch, ()


def _ready(switch: PlanSwitch, proposal: Proposal, device: str, now: float) -> Result:
    proposal = replace(proposal, answered=proposal.answered | {device})
    if proposal.missing:
        return replace(switch, next=proposal), ()
    decided = replace(proposal, answered=frozenset(), sent=now)
    return (replace(switch, next=None, in_use=decided, broken=False),
            _to(decided.devices, Commit(decided.id, decided.boundary)))


def lost(switch: PlanSwitch, device: str) -> Result:
    """Let a device go: nobody prepares a plan with it, and the one in use is broken."""
    if switch.in_use and device in switch.in_use.devices:
        switch = replace(switch, broken=True)
    if switch.next and device in switch.next.devices:
        return give_up(switch)
    return switch, ()


def remind(switch: PlanSwitch, now: float, times: SwitchTimes = SwitchTimes()) -> Result:
    """Let time go on: give up what takes too long, and ask again who has not answered."""
    if switch.next and now - switch.next.since > times.preparing:
        return give_up(switch)
    out: tuple[Outgoing, ...] = ()
    if switch.next and now - switch.next.sent >= times.again:
        out += _to(switch.next.missing, Prepare(switch.next.id, switch.next.plan))
        switch = replace(switch, next=replace(switch.next, sent=now))
    if switch.in_use and switch.in_use.missing and now - switch.in_use.sent >= times.again:
        out += _to(switch.in_use.missing, Commit(switch.in_use.id, switch.in_use.boundary))
        switch = replace(switch, in_use=replace(switch.in_use, sent=now))
    return switch, out


def _to(devices: frozenset[str], order: Order) -> tuple[Outgoing, ...]:
    return tuple(Outgoing(name, order) for name in sorted(devices))
