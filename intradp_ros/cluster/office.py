# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""
Who coordinates: a stable rule, a lease, and terms that only grow.

Of the candidates that are alive the one of the highest priority does, of
equals the first by name.  It claims the office in a term of its own and
renews its claim; who hears none for the length of a lease takes the office
to be vacant.  Two may hold it for a moment where the network is divided:
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
class OfficeTimes:
    """Seconds: a claim is renewed every `renewal`, and holds for `lease`."""

    renewal: float = 0.2
    lease: float = 1.0


@dataclass(frozen=True, slots=True)
class Office:
    """
    What one candidate knows of the office.

    `incarnation` is drawn when its process starts, so that a term is never
    used twice.  `term` is the highest that it has heard of; `holder` is
    empty where the office is vacant.
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


def next_term(office: Office) -> int:
    """Return a term above all heard of, which no other candidate or incarnation would use."""
    own = blake2s(f'{office.name} {office.incarnation}'.encode(), digest_size=OWN_BITS // 8)
    return ((office.term >> OWN_BITS) + 1 << OWN_BITS) + int.from_bytes(own.digest(), 'big')


def heard_claim(office: Office, claim: Claim, now: float,
                times: OfficeTimes = OfficeTimes()) -> Office:
    """Follow a claim, unless its term is lower than one heard of."""
    if claim.term < office.term or claim.name == office.name:
        return office
    return replace(office, term=claim.term, holder=claim.name, expires=now + times.lease)


def heard_resign(office: Office, resign: Resign) -> Office:
    """Take the office to be vacant, if it is the holder who resigns."""
    if resign.name == office.holder and resign.term == office.term and not office.held:
        return replace(office, holder='', expires=-math.inf)
    return office


def heard_term(office: Office, term: int) -> Office:
    """Learn of a term; a holder of a lower one does not hold the office any more."""
    if term <= office.term:
        return office
    return replace(office, term=term, holder='', expires=-math.inf)


def stand(office: Office, candidates: Mapping[str, int], now: float,
          times: OfficeTimes = OfficeTimes()) -> tuple[Office, Claim | Resign | None]:
    """
    Let time go on; return what to tell everyone.

    `candidates` are those alive, with their priorities; oneself always is
    one.  A holder that was stopped for longer than its lease lets go of the
    office; one that finds a better candidate alive resigns.
    """
    if office.holder and now > office.expires:
        office = replace(office, holder='')
    best = _best({**candidates, office.name: office.priority})
    if office.held:
        if best != office.name:
            return replace(office, holder='', expires=-math.inf), Resign(office.name, office.term)
        if now - office.renewed < times.renewal:
            return office, None
    elif office.holder or best != office.name:
        return office, None
    else:
        office = replace(office, term=next_term(office), holder=office.name)
    return (replace(office, expires=now + times.lease, renewed=now),
            Claim(office.name, office.priority, office.term))


def _best(candidates: Mapping[str, int]) -> str:
    return min(candidates, key=lambda name: (-candidates[name], name))
