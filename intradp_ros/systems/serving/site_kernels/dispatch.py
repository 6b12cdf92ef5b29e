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
_WORD = 0xffffffff


class SiteRows(NamedTuple):
    """
    What a site has heard of all sites.

    By site and service as `seats.outlook` writes them: seconds until one more request would end
    (`ends`, infinite where the service is not), by which each request delays the next (`shares`),
    of one row alone (`least`).  By site: when the row was made (`made`, in the own clock), the
    seconds of one way there (`hop`), and the seconds of work sent there since (`sent`).
    """

    ends: Floats
    shares: Floats
    least: Floats
    made: Floats
    hop: Floats
    sent: Floats


def make_rows(sites: int, services: int) -> SiteRows:
    """Return rows of sites of which nothing has been heard."""
    shape = sites, services
    return SiteRows(np.full(shape, np.inf), np.zeros(shape), np.full(shape, np.inf),
                    np.zeros(sites), np.zeros(sites), np.zeros(sites))


def age_corrected(rows: SiteRows, service: int, now: float) -> Floats:
    """Return, by site, the seconds after which one more request would end if it were there now."""
    waited = rows.ends[:, service] - (now - rows.made)
    return np.maximum(waited, rows.least[:, service]) + rows.sent


def choose_site(rows: SiteRows, service: int, remaining: float, visited: Flags, number: int,
                now: float) -> int:
    """
    Draw the next site of a request from those where it would end in time; -1 without any.

    `visited` are the sites that it has been to, this one among them.  Equal numbers are drawn
    equally.
    """
    slack = remaining - age_corrected(rows, service, now) - 2 * rows.hop
    weights = np.where(visited | ~(slack >= 0), 0.0, slack + 1e-6)
    sums = np.cumsum(weights)
    if not sums[-1] > 0:
        return -1
    drawn = splitmix(number + int(np.sum(visited))) * sums[-1]
    return min(int(np.searchsorted(sums, drawn, side='right')), len(sums) - 1)


def note_sent(rows: SiteRows, site: int, service: int) -> None:
    """Remember a request that is sent to a site, until its next row comes."""
    rows.sent[site] += rows.shares[site, service]


def splitmix(number: int) -> float:
    """Return a number of [0, 1) that follows from another, as if by chance."""
    x = ((number ^ (number >> 32)) * 1 + 0x1e3779b9) & _WORD
    x = ((x ^ (x >> 16)) * 0x21f0aaad) & _WORD
    x = ((x ^ (x >> 15)) * 0x735a2d97) & _WORD
    return (x ^ (x >> 15)) / 4294967296.0
