# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""Other places for a site that is at work: who sits or runs where it stays."""
from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from intradp_ros.systems.serving.site_arrays import absent, GONE, make_site, SiteArrays


def rearranged(site: SiteArrays, pairs: Sequence[tuple[int, int]], executors: int) -> SiteArrays:
    """
    Return a site with the places `pairs`, (executor, service) each; new ones are not ready.

    :raises ValueError: if a place is left out at which somebody sits or runs, or an executor that
        has one.
    """
    before = {pair: k for k, pair in enumerate(zip(site.executor_of.tolist(),
                                                   site.service_of.tolist()))}
    kept = [(k, before[pair]) for k, pair in enumerate(pairs) if pair in before]
    new, old = (np.array([each[side] for each in kept], np.int64) for side in (0, 1))
    gone = np.setdiff1d(np.arange(len(before)), old)
    if site.queued[gone].any() or np.isin(site.running, gone).any() \
            or any(e >= executors for e, _ in pairs):
        raise ValueError('somebody sits at a place that is left out')
    here = np.full(len(before) + 1, -1, np.int64)  # -1 stays -1
    here[old] = new
    found = make_site([absent(*pair) for pair in pairs], executors, len(site.spent),
                      len(site.state), site.queue.shape[1], site.batch.shape[1])
    for name in ('size', 'wanted', 'ready', 'seconds', 'queue', 'queued'):
        getattr(found, name)[new] = getattr(site, name)[old]
    found.alive[:] = GONE
    count = min(executors, len(site.alive))
    for name in ('alive', 'began', 'free_at', 'batch', 'batched', 'slotted'):
        getattr(found, name)[:count] = getattr(site, name)[:count]
    found.running[:count] = here[site.running[:count]]
    for e in range(count):
        slots = site.slots[e, :site.slotted[e]]
        found.slots[e, :len(slots)] = here[slots]
    return found._replace(place=np.maximum(here[site.place], 0), **{
        name: getattr(site, name) for name in (
            'number', 'service', 'deadline', 'priority', 'state', 'fate', 'doomed', 'free',
            'ended', 'marks', 'spent')})
