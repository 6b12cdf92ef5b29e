# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""Baselines of choosing a site, for live gateways."""
from __future__ import annotations

import numpy as np

from intradp_ros.systems.serving.neighbours import Chooser
from intradp_ros.systems.serving.site_kernels.dispatch import Flags, SiteRows

OURS, NEAREST, ROUND_ROBIN = 'drawn by slack', 'nearest only', 'round robin'
SYSTEMS = (OURS, NEAREST, ROUND_ROBIN)


def chooser(name: str) -> Chooser | None:
    """Return how a system chooses the next site, None for the gateway's own way."""
    if name == NEAREST:
        return lambda rows, service, remaining, visited, number, now: -1
    return _InTurn() if name == ROUND_ROBIN else None


class _InTurn:
    """Takes one site after another of those that have a service, whatever they have to do."""

    def __init__(self) -> None:
        self._last = 0

    def __call__(self, rows: SiteRows, service: int, remaining: float, visited: Flags,
                 number: int, now: float) -> int:
        """Return the next site, -1 without any."""
        count = len(visited)
        for step in range(1, count + 1):
            site = (self._last + step) % count
            if not visited[site] and np.isfinite(rows.least[site, service]):
                self._last = site
                return site
        return -1
