# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""
Who is there: devices by what was heard of them, as a state machine over (event, time).

A device that is heard for the first time, or again after it was gone, is on
probation; heard for a while without a pause it is alive.  One that falls
silent is suspect, then gone.  A process that started anew holds nothing of
what it held, so it is gone, and on probation at once.
"""
from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import Enum

from intradp_ros.cluster.fleet_messages import Goodbye, Heartbeat

#: Devices that are remembered; more come only of strangers.
MAX_MEMBERS = 256


class Liveness(Enum):
    """What plans may count on."""

    PROBATION = 'probation'
    ALIVE = 'alive'
    SUSPECT = 'suspect'
    GONE = 'gone'


@dataclass(frozen=True, slots=True)
class MemberTimes:
    """
    Seconds of silence until a device is suspect or gone, and of being heard until it counts.

    :raises ValueError: if they are not in order: heartbeat < suspect < gone.
    """

    heartbeat: float = 0.2
    suspect: float = 0.5
    gone: float = 1.0
    probation: float = 0.5

    def __post_init__(self) -> None:
        """Check their order."""
        if not (0 < self.heartbeat < self.suspect < self.gone and self.probation >= 0):
            raise ValueError(f'times must grow from heartbeat to suspect to gone, got {self}')


@dataclass(frozen=True)
class Member:
    """A device: if it lives, since when it was heard without a pause, and what it last said."""

    liveness: Liveness
    since: float
    heard: float
    beat: Heartbeat


@dataclass(frozen=True, slots=True)
class Change:
    """A device's liveness became another."""

    device: str
    before: Liveness
    after: Liveness


@dataclass(frozen=True)
class Membership:
    """All devices that were ever heard, by name."""

    members: Mapping[str, Member] = field(default_factory=dict)

    @property
    def alive(self) -> frozenset[str]:
        """The devices that new plans may count on: those alive, not those that are suspect."""
        return self.of(Liveness.ALIVE)

    def of(self, *wanted: Liveness) -> frozenset[str]:
        """Return the devices of the liveness wanted."""
        return frozenset(n for n, m in self.members.items() if m.liveness in wanted)

    def holds(self, device: str, *wanted: Liveness) -> bool:
        """Return whether a device is known, and of the liveness wanted."""
        return device in self.members and self.members[device].liveness in wanted


Step = tuple[Membership, tuple[Change, ...]]


def hear(state: Membership, event: Heartbeat | Goodbye, now: float,
         times: MemberTimes = MemberTimes()) -> Step:
    """
    Take what a device says, unless it is late.

    There are up to `MAX_MEMBERS`: of those that are gone the one that went first makes room.
    """
    old = state.members.get(event.device)
    if isinstance(event, Goodbye):
        if old is None or old.liveness is Liveness.GONE:
            return state, ()
        return _with(state, event.device, replace(old, liveness=Liveness.GONE))
    if old and is_late(old.beat, event):
        return state, ()
    if old is None and len(state.members) >= MAX_MEMBERS:
        gone = min(state.of(Liveness.GONE), default='',
                   key=lambda name: state.members[name].heard)
        if not gone:
            return state, ()
        state = Membership({n: m for n, m in state.members.items() if n != gone})
    return _with(state, event.device, _heard(old, event, now, times))


def is_late(last: Heartbeat, beat: Heartbeat) -> bool:
    """Return whether a heartbeat is older than another of the same process."""
    return beat.incarnation == last.incarnation and beat.sequence <= last.sequence


def _heard(old: Member | None, beat: Heartbeat, now: float, times: MemberTimes) -> Member:
    fresh = (old is None or old.liveness is Liveness.GONE or now - old.heard > times.gone
             or old.beat.incarnation != beat.incarnation)
    if old is None or fresh:
        return Member(Liveness.PROBATION, now, now, beat)
    if old.liveness is Liveness.PROBATION:
        paused = now - old.heard > times.suspect
        since = now if paused else old.since
        served = now - since >= times.probation
        return Member(Liveness.ALIVE if served and not paused else Liveness.PROBATION,
                      since, now, beat)
    return Member(Liveness.ALIVE, old.since, now, beat)


def watch(state: Membership, now: float, times: MemberTimes = MemberTimes()) -> Step:
    """Let time go on: who has been silent is suspect, then gone."""
    changes: tuple[Change, ...] = ()
    for name, member in state.members.items():
        after = _silent(member, now, times)
        if after is not member.liveness:
            state, found = _with(state, name, replace(member, liveness=after))
            changes += found
    return state, changes


def _silent(member: Member, now: float, times: MemberTimes) -> Liveness:
    silence = now - member.heard
    if silence > times.gone:
        return Liveness.GONE
    if silence > times.suspect and member.liveness is Liveness.ALIVE:
        return Liveness.SUSPECT
    return member.liveness


def _with(state: Membership, name: str, member: Member) -> Step:
    old = state.members.get(name)
    before = old.liveness if old else Liveness.GONE
    changed = before is not member.liveness or (
        old is not None and old.beat.incarnation != member.beat.incarnation)
    return (Membership({**state.members, name: member}),
            (Change(name, before, member.liveness),) if changed else ())
