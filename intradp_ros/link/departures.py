# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""
Whose chunk a sender launches next, where what it sends to several peers shares an air.

Each peer has a window, `limit` bytes: half of it fills a link of the peer's
own, the other half is there so that a link never runs empty.

A peer that waits with more urgent chunks, because its window is full, has the
air filled already.  Others may have in flight what their windows exceed
`URGENT_WEIGHT` times its bytes by: nothing on one air, where windows are alike (they
are measured, so one may be twice the other), and most of it next to a peer that
is slow, whose window is small.  One that takes nothing at all any more
(`moves` is false) does not count.

Among peers that are equally urgent one reserve is enough for all: each
always may have half of its window in flight, and the rest of it while all
together have no more than one window.  Of those that may, the most urgent goes
first, and of equals the one whose last launch is the longest ago.
"""
from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

#: So many times the bytes of a more urgent peer keep others from launching.
URGENT_WEIGHT = 4


@dataclass(frozen=True, slots=True)
class Departure:
    """
    The first chunk that waits for a peer: its urgency (the smallest number first) and bytes.

    `in_flight` bytes of `limit` are in flight to that peer.  `launched` counts
    up with the sender's launches.  `fits` means that the peer's own window
    takes the chunk, `moves` that the peer took one lately, and `air` names the
    medium that the sender's chunks to it go through first.
    """

    peer: int
    urgency: float
    nbytes: int
    in_flight: int
    limit: int
    launched: int = 0
    fits: bool = True
    moves: bool = True
    air: str = ''


def next_departure(waiting: Collection[Departure], in_flight: int) -> Departure | None:
    """Return what leaves next, with `in_flight` bytes in flight to all peers; None to wait."""
    return min((d for d in waiting if d.fits and _has_room(d, waiting, in_flight)),
               key=lambda d: (d.urgency, d.launched, d.peer), default=None)


def _has_room(departure: Departure, waiting: Collection[Departure], in_flight: int) -> bool:
    own, limit = departure.in_flight + departure.nbytes, departure.limit
    ahead = sum(d.in_flight for d in waiting
                if d.urgency < departure.urgency and d.moves and d.air == departure.air)
    if ahead:
        return own + URGENT_WEIGHT * ahead <= limit
    return (departure.in_flight == 0 or 2 * own <= limit
            or in_flight + departure.nbytes <= limit)
