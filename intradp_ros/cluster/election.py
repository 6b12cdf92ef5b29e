# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""
Who coordinates: a stable rule, a lease, and terms that only grow.

Of the candidates that are alive the one of the highest priority does, of
equals the first by name.  It claims a term of its own and
renews its claim; who hears none for the length of a lease takes the place
to be vacant.  Two may coordinate for a moment where the network is divided:
their terms differ, and everyone follows the higher.
"""
from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from hashlib import blake2s
import math

from intradp_ros.cluster.fleet_messages import Claim, Resign
from intradp_ros.cluster.terms import OWN_BITS


@dataclass(frozen=True, slots=True)
class ElectionTimes:
    """Seconds: a claim is renewed every `renewal`, and holds for `lease`."""

    renewal: float = 0.2
    lease: float = 1.0


@dataclass(frozen=True, slots=True)
class Election:
    """
    What one candidate knows of who coordinates.

    `incarnation` is drawn when its process starts, so that a term is never
    used twice.  `term` is the highest that it has heard of; `holder` is
    empty where nobody does.
    """

    name: str
    priority: int
    incarnation: int
    term: int = 0
    holder: str = ''
    expires: float = -math.inf
    renewed: float = -math.inf

    @property
    def held(self) -> bool:
        """Whether this candidate coordinates."""
        return self.holder == self.name


def next_term(election: Election) -> int:
    """Return a term above all heard of, which no other candidate or incarnation would use."""
    own = blake2s(f'{election.name} {election.incarnation}'.encode(), digest_size=OWN_BITS // 8)
    return ((election.term >> OWN_BITS) + 1 << OWN_BITS) + int.from_bytes(own.digest(), 'big')


def heard_claim(election: Election, claim: Claim, now: float,
                times: ElectionTimes = ElectionTimes()) -> Election:
    """Follow a claim, unless its term is lower than one heard of."""
    if claim.term < election.term or claim.name == election.name:
        return election
    return replace(election, term=claim.term, holder=claim.name, expires=now + times.lease)


def heard_resign(election: Election, resign: Resign) -> Election:
    """Take the place to be vacant, if it is the holder who resigns."""
    if resign.name == election.holder and resign.term == election.term and not election.held:
        return replace(election, holder='', expires=-math.inf)
    return election


def heard_term(election: Election, term: int) -> Election:
    """Learn of a term; a holder of a lower one does not coordinate any more."""
    if term <= election.term:
        return election
    return replace(election, term=term, holder='', expires=-math.inf)


def campaign_step(election: Election, candidates: Mapping[str, int], now: float,
                  times: ElectionTimes = ElectionTimes(), *, aside: bool = False,
                  ) -> tuple[Election, Claim | Resign | None]:
    """
    Let time go on; return what to send everyone.

    `candidates` are those alive, with their priorities; oneself always is
    one.  A holder that was stopped for longer than its lease steps
    down; one that finds a better candidate alive, or is to stand `aside`, resigns.
    """
    if election.holder and now > election.expires:
        election = replace(election, holder='')
    candidates = {**candidates, election.name: election.priority}
    best = min(candidates, key=lambda name: (-candidates[name], name))
    if election.held:
        if aside or best != election.name:
            return (replace(election, holder='', expires=-math.inf),
                    Resign(election.name, election.term))
        if now - election.renewed < times.renewal:
            return election, None
    elif aside or election.holder or best != election.name:
        return election, None
    else:
        election = replace(election, term=next_term(election), holder=election.name)
    return (replace(election, expires=now + times.lease, renewed=now),
            Claim(election.name, election.priority, election.term))
