# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""What a gateway knows of other sites; who has it calls it under a lock."""
from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
import math
from typing import Protocol

import numpy as np

from intradp_ros.runtime.requests.infer_requests import InferRequest
from intradp_ros.systems.serving.held_requests import Heard, Held
from intradp_ros.systems.serving.site_kernels.dispatch import (
    Flags,
    make_rows,
    note_sent,
    SiteRows,
)
from intradp_ros.systems.serving.state_row import StateRow

#: As `site_kernels.dispatch.choose_site`.
Chooser = Callable[[SiteRows, int, float, Flags, int, float], int]


class Link(Protocol):
    """The way to the gateway of another site."""

    def send(self, request: InferRequest, path: Sequence[str], heard: Heard,
             ) -> Callable[[], None]:
        """Send a request that was at the sites of `path`; return what withdraws it, at once."""


class Neighbours:
    """All sites by name, the own one first, with their links and newest rows."""

    def __init__(self, sites: Iterable[str], services: int) -> None:
        self.sites = {name: k for k, name in enumerate(dict.fromkeys(sites))}
        self.others = tuple(self.sites)[1:]
        self.links: dict[str, Link] = {}
        self.rows = make_rows(len(self.sites), services)
        #: Chooses the next site in place of `choose_site`, for comparisons.
        self.chooser: Chooser | None = None

    def target(self, chooser: Chooser, held: Held, now: float) -> int:
        """Return the site that a request is forwarded to, -1 for none."""
        visited = np.array([name not in self.links or name in held.path for name in self.sites])
        if visited.all():
            return -1
        return int((self.chooser or chooser)(self.rows, held.service, held.deadline - now,
                                             visited, held.chance, now))

    def way(self, target: int, service: int, now: float) -> tuple[str, Link, float, float]:
        """
        Note that a request is sent to a site.

        Return its name and link, the seconds after which its answer is predicted, and those of
        the ways there and back.
        """
        rows = self.rows
        note_sent(rows, target, service)
        name = next(name for name, k in self.sites.items() if k == target)
        ways = 2 * float(rows.hop[target])
        ends = rows.ends[target, service] - (now - rows.made[target])
        return name, self.links[name], float(
            max(ends, rows.least[target, service]) + rows.sent[target]) + ways, ways

    def heard(self, site: str, row: StateRow, numbers: Mapping[str, int], hop: float,
              now: float) -> None:
        """Take a row that was made `hop` seconds ago; `numbers` are those of services."""
        k = self.sites.get(site, 0)
        if k == 0:
            return
        self.rows.ends[k] = math.inf
        for name, (ends, share, least) in row.services.items():
            if (number := numbers.get(name)) is not None:
                self.rows.ends[k, number] = ends
                self.rows.shares[k, number] = share
                self.rows.least[k, number] = least
        self.rows.made[k], self.rows.hop[k], self.rows.sent[k] = now - hop, hop, 0.0

    def reach(self, site: str, link: Link) -> None:
        """Take the link to a site that can be reached."""
        if site in self.sites:
            self.links[site] = link

    def forget(self, site: str) -> None:
        """Forget a site that cannot be reached."""
        self.links.pop(site, None)
        if k := self.sites.get(site, 0):
            self.rows.ends[k] = math.inf
