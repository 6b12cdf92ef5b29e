# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""Whether the arrays of a serving site hang together."""
from typing import Any

import numpy as np

from intradp_ros.systems.serving.site_arrays import FREE, FREE_ROWS, OVER, RUNNING, SEATED


def check_whole(site: Any) -> None:
    """
    Raise AssertionError where a site is not whole: rows lost or doubled, slots that do not match.

    To be called after any sequence of calls.
    """
    held = [int(row) for p, n in enumerate(site.queued) for row in site.queue[p, :n]]
    running = [int(row) for e, n in enumerate(site.batched) for row in site.batch[e, :n]]
    free = [int(row) for row in site.free[:site.marks[FREE_ROWS]]]
    assert sorted(held + running + free) == list(range(len(site.state))), 'rows lost or doubled'
    assert all(site.state[held] == SEATED) and all(site.state[free] == FREE)
    assert all(np.isin(site.state[running], (RUNNING, OVER)))
    for p, n in enumerate(site.queued):
        slots = site.slots[site.executor_of[p], :site.slotted[site.executor_of[p]]]
        assert (slots == p).sum() == -(-n // site.size[p]), f'slots of place {p}'
        keys = [(-site.priority[r], site.deadline[r], site.number[r]) for r in site.queue[p, :n]]
        assert keys == sorted(keys), f'order of place {p}'
        assert all(site.place[site.queue[p, :n]] == p)
    assert all((site.running >= 0) == (site.batched > 0))
