# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""What was played live, in the simulator, and the bound of it."""
from __future__ import annotations

from collections.abc import Mapping, Sequence
import math
from typing import Any

import numpy as np

from intradp_lab.serving.robots_process import Requests
from intradp_lab.serving.scene import SERVICES, SITES
from intradp_ros.systems.serving.arrivals import arrivals
from intradp_ros.systems.serving.site_arrays import Place
from intradp_ros.systems.serving.world import even_hops, most, replay, SimulatedSite, World


def simulated(states: Mapping[str, Mapping[str, Any]], requests: Requests, homes: Sequence[str],
              mbps: float) -> dict[str, float]:
    """
    Return goodput and 95th percentile of the same requests in a world as the sites measured it.

    `bound` is what nobody can exceed.  Robots' pictures cross the air before they come to a
    gateway.
    """
    sites = list(SITES)
    world = World(tuple(_site(states[name]) for name in sites), len(SERVICES),
                  even_hops(len(sites), _hop(states)), spread=_spread(states))
    air = np.array([3 * side * side * 8 / (mbps * 1e6) for side, _ in SERVICES.values()])
    ways = air[requests.service]
    home = np.array([sites.index(name) for name in homes])[requests.robot]
    asked = arrivals(requests.time + ways, requests.remaining - ways, home, requests.service)
    found = replay(world, asked)
    return {'goodput': found.goodput, 'p95_ms': 1e3 * (found.quantile(0.95) + float(ways.mean())),
            'bound': most(world, asked) / (found.span or math.inf)}


def _site(state: Mapping[str, Any]) -> SimulatedSite:
    found = [state['services'][name]['batches'][0] for name in SERVICES]
    return SimulatedSite(1, tuple(
        Place(0, k, place['size'], _by_rows(place, 'promised_ms'))
        for k, place in enumerate(found)), tuple(_by_rows(place, 'mean_ms') for place in found))


def _by_rows(place: Mapping[str, Any], key: str) -> tuple[float, ...]:
    """Return seconds by rows of a batch, which runs in the next larger size; they never fall."""
    by_size = {int(b): ms / 1e3 for b, ms in place[key].items()}
    seconds = [by_size[min(b for b in by_size if b >= n)] for n in range(1, place['size'] + 1)]
    return tuple(float(s) for s in np.maximum.accumulate(seconds))


def _hop(states: Mapping[str, Mapping[str, Any]]) -> float:
    hops = [ms for state in states.values() for ms in state['hop_ms'].values()]
    return float(np.mean(hops)) / 1e3 if hops else 0.0


def _spread(states: Mapping[str, Mapping[str, Any]]) -> float:
    """Return the relative deviation of batches' times, the median of all."""
    shares = [(promised - mean) / 2 / mean for state in states.values()
              for name in SERVICES for place in state['services'][name]['batches']
              for promised, mean in zip(place['promised_ms'].values(),
                                        place['mean_ms'].values())]
    return float(np.median(shares))
