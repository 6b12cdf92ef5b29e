# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""
Who computes next where several want the same processor.

Start-time fair queueing (Goyal, Vin and Cheng, SIGCOMM 1996) among parties,
by the seconds that they computed; within a party the oldest inference goes
first.  A state machine over (event, time) without threads.
"""
from __future__ import annotations

from collections.abc import Hashable, Iterable
from dataclasses import dataclass, field

#: Seconds for which a party keeps the processor, between operators, while another one waits:
#: handing it over takes a part in a hundred of that.
QUANTUM = 2e-3


@dataclass(frozen=True, slots=True)
class TurnRequest:
    """A wish to compute: whose, and for which inference of theirs (the least goes first)."""

    party: Hashable
    inference: int


@dataclass
class TurnOrder:
    """
    Gives `lanes` turns at a time.

    A party that wanted nothing for a while is owed nothing for it.  Times are
    seconds.
    """

    lanes: int = 1
    quantum: float = QUANTUM
    _used: dict[Hashable, float] = field(default_factory=dict)  # seconds, as fairness counts them
    _waiting: list[TurnRequest] = field(default_factory=list)  # by the time of asking
    _turns: dict[TurnRequest, float] = field(default_factory=dict)  # and when they began
    _floor: float = 0.0  # what the party that used least of those who are busy has used

    def __post_init__(self) -> None:
        """See that somebody can have a turn."""
        if self.lanes < 1:
            raise ValueError(f'a processor computes at least 1 at a time, got {self.lanes}')

    @property
    def busy(self) -> frozenset[Hashable]:
        """The parties that compute, or wait for it."""
        return frozenset(claim.party for claim in (*self._turns, *self._waiting))

    def ask(self, claim: TurnRequest, now: float) -> None:
        """Let a claim wait for its turn."""
        busy = self.busy
        if claim.party not in busy:
            self._raise_floor(busy, now)
            self._used[claim.party] = max(self._used.get(claim.party, 0.0), self._floor)
        self._waiting.append(claim)

    def grant(self, now: float) -> TurnRequest | None:
        """Begin the next turn, if a lane is free and somebody waits; return whose it is."""
        if not self._waiting or len(self._turns) >= self.lanes:
            return None
        claim = self._next()
        self._waiting.remove(claim)
        self._turns[claim] = now
        return claim

    def may_go_on(self, claim: TurnRequest, now: float) -> bool:
        """Return whether who has a turn may keep it for one more operator."""
        if not self._waiting or len(self._turns) < self.lanes:
            return True
        other = self._next()
        if other.party == claim.party:
            return other.inference > claim.inference
        return now - self._turns[claim] < self.quantum

    def end(self, claim: TurnRequest, now: float, *, again: bool = False) -> None:
        """End a turn; `again` waits for the next one at once."""
        self._raise_floor(self.busy, now)
        self._used[claim.party] += now - self._turns.pop(claim)
        if again:
            self._waiting.append(claim)

    def forget(self, party: Hashable) -> None:
        """Forget what a party used that will not come again."""
        if party not in self.busy:
            self._used.pop(party, None)

    def _raise_floor(self, busy: Iterable[Hashable], now: float) -> None:
        used = dict(self._used)
        for claim, began in self._turns.items():
            used[claim.party] += now - began
        self._floor = max(self._floor, min((used[party] for party in busy), default=0.0))

    def _next(self) -> TurnRequest:
        return min(self._waiting, key=lambda c: (self._used[c.party], c.inference))
