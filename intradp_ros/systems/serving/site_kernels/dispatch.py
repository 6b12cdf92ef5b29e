# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""
To which site a request is forwarded: drawn by predicted slack, never the best of old rows.

Were the best one taken, all would take the same until the next rows come.
"""
from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from intradp_ros.systems.serving.site_arrays import Floats

Flags = np.ndarray[Any, np.dtype[np.bool_]]
#: Sites that a request may pass on its way.
MAX_HOPS = 5
#: Shares of what remains of a request's time: it looks for another site if its seat leaves less
#: than the first to spare, and goes to one that leaves more by the second.
ROOMY, ROOMIER = 0.75, 0.25
#: Above so many sites it stays: of many full ones some always look better by rows that are old.
FEW = 16
_WORD = 0xffffffff


class SiteRows(NamedTuple):
    """
    What a site has heard of all sites.

    By site and service as `seats.outlook` writes them: seconds until one more request would end
    (`ends`, infinite where the service is not), by which each request delays the next (`shares`),
    of one row alone (`least`).  By site: when the row was made (`made`, in the own clock), the
    seconds of one way there (`hop`), and the seconds of work sent there since (`sent`).  `slack`
    is room for the kernels.
    """

    ends: Floats
    shares: Floats
    least: Floats
    made: Floats
    hop: Floats
    sent: Floats
    slack: Floats


def make_rows(sites: int, services: int) -> SiteRows:
    """Return rows of sites of which nothing has been heard."""
    shape = sites, services
    return SiteRows(np.full(shape, np.inf), np.zeros(shape), np.full(shape, np.inf),
                    np.zeros(sites), np.zeros(sites), np.zeros(sites), np.zeros(sites))


def slacks(rows: SiteRows, service: int, remaining: float, visited: Flags, now: float) -> None:
    """
    Write, by site, the seconds that a request would have to spare there; 0 where it would be late.

    A row is corrected by its age and by what was sent there since; both ways are taken off.
    `visited` sites have 0.
    """
    left = rows.slack
    np.subtract(now, rows.made, left)
    np.subtract(rows.ends[:, service], left, left)
    np.fmax(left, rows.least[:, service], left)
    np.add(left, rows.sent, left)
    np.add(left, rows.hop, left)
    np.add(left, rows.hop, left)
    np.subtract(remaining, left, left)
    np.fmax(left, 0.0, left)
    for site in range(len(visited)):
        if visited[site]:
            left[site] = 0.0


def choose_site(rows: SiteRows, service: int, remaining: float, visited: Flags, number: int,
                now: float) -> int:
    """
    Draw the next site of a request from those where it would end in time; -1 without any.

    `visited` are the sites that it has been to, this one among them.  Equal numbers are drawn
    equally.
    """
    slacks(rows, service, remaining, visited, now)
    return drawn_site(rows.slack, visited, number)


def is_crowded(remaining: float, seconds: float) -> bool:
    """Say whether a seat that ends in so many seconds leaves a request little to spare."""
    return remaining - seconds < ROOMY * remaining


def choose_roomier(rows: SiteRows, service: int, remaining: float, visited: Flags, number: int,
                   now: float, seconds: float) -> int:
    """
    Draw a site for a request that has a seat here which ends in so many `seconds`; -1: it stays.

    A site that keeps what others could answer as well has no time for what it alone can.
    """
    if len(visited) > FEW:
        return -1
    slacks(rows, service, remaining, visited, now)
    own = remaining - seconds + ROOMIER * remaining
    for site in range(len(visited)):
        rows.slack[site] = max(0.0, rows.slack[site] - own)
    return drawn_site(rows.slack, visited, number)


def drawn_site(weights: Floats, visited: Flags, number: int) -> int:
    """Draw a site by its weight; -1 where none has any."""
    total = weights.sum()
    if not total > 0.0:
        return -1
    left = splitmix(number * 8 + int(visited.sum())) * total
    found = -1
    for site in range(len(weights)):
        if weights[site] > 0.0:
            found = site
            left -= weights[site]
            if left < 0.0:
                break
    return found


def note_sent(rows: SiteRows, site: int, service: int) -> None:
    """Remember a request that is sent to a site, until its next row comes."""
    rows.sent[site] += rows.shares[site, service]


def splitmix(number: int) -> float:
    """Return a number of [0, 1) that follows from another, as if by chance."""
    x = ((number ^ (number >> 32)) * 1 + 0x1e3779b9) & _WORD
    x = ((x ^ (x >> 16)) * 0x21f0aaad) & _WORD
    x = ((x ^ (x >> 15)) * 0x735a2d97) & _WORD
    return (x ^ (x >> 15)) / 4294967296.0
