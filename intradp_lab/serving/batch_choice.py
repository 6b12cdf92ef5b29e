# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""
BS by replay: what came to a site in the last minute is played in batches of other sizes.

The rule of `allocator.largest_batch` promises two planned batches within the deadline.  It is
too careful where times spread, and says nothing where not even two fit.
"""
from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from intradp_ros.systems.serving.arrivals import Arrivals
from intradp_ros.systems.serving.site_arrays import Place
from intradp_ros.systems.serving.world import even_hops, replay, SimulatedSite, World

#: Another size must answer so much more, of all requests; the newest requests that are played.
MARGIN, MOST_REQUESTS = 0.005, 20_000


def replayed_sizes(site: SimulatedSite, asked: Arrivals, spread: float = 0.0,
                   sizes: Mapping[int, Sequence[int]] | None = None,
                   margin: float = MARGIN) -> tuple[int, ...]:
    """
    Return, by place, the sizes of batches that answer most of what came to a site.

    `site` has today's sizes; its places' `seconds` say which larger ones there are.  `asked`
    came to this site; `spread` as in `World`.  `sizes`, by service, are those there are programs
    for; without them each is.  One service after the other is changed, the most asked for first,
    and only where at least `margin` of the requests more are answered in time.
    """
    asked = Arrivals._make(column[-MOST_REQUESTS:] for column in asked)
    chosen = list(site.places)
    if not len(asked.time):
        return tuple(place.size for place in chosen)
    services = 1 + max(int(asked.service.max()), *(place.service for place in chosen))
    asked = asked._replace(site=np.zeros_like(asked.site))

    def in_time(places: Sequence[Place]) -> int:
        world = World((replace(site, places=tuple(places)),), services, even_hops(1, 0),
                      spread=spread)
        return replay(world, asked).in_time

    value = in_time(chosen)
    counts = np.bincount(asked.service, minlength=services)
    for service in np.argsort(-counts, kind='stable').tolist():
        mine = [place for place in chosen if place.service == service]
        if not mine or not counts[service]:
            continue
        longest = float(asked.remaining[asked.service == service].max())
        most = min(len(place.seconds) for place in mine)
        offered = range(1, most + 1) if sizes is None else sizes.get(service, ())
        tried = {}
        for size in offered:
            if size <= most and max(place.seconds[size - 1] for place in mine) <= longest \
                    and any(place.size != size for place in mine):
                tried[size] = in_time([replace(place, size=size) if place.service == service
                                       else place for place in chosen])
        best = max(tried, key=lambda size: tried[size], default=0)
        if best and tried[best] >= value + margin * len(asked.time):
            value = tried[best]
            chosen = [replace(place, size=best) if place.service == service else place
                      for place in chosen]
    return tuple(place.size for place in chosen)
