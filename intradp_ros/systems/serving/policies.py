# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""Ours and the baselines, for the simulator; how they admit, also for a live gateway."""
from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from intradp_ros.core.numba_compile import machine_code
from intradp_ros.systems.serving import policy_kernels
from intradp_ros.systems.serving.site_arrays import Asked, Seat, SiteArrays
from intradp_ros.systems.serving.site_functions import MODULES, site_functions, SiteFunctions
from intradp_ros.systems.serving.world import Policy
from intradp_ros.systems.serving.world_kernels import (
    ALL,
    BEST,
    BY_DEADLINE,
    CENTRE,
    IDLE_GOODPUT,
    IN_TURN,
    NOWHERE,
    SEATS,
    SLACK,
)

#: Seconds until a centre has decided, as the paper says of ten servers.
CENTRE_DELAY = 0.1
POLICIES: Mapping[str, Policy] = {
    'ours': Policy('ours'),
    'nearest': Policy('nearest', SEATS, NOWHERE),
    'round robin': Policy('round robin', SEATS, IN_TURN),
    'idle goodput': Policy('idle goodput', SEATS, IDLE_GOODPUT),
    'best of old rows': Policy('best of old rows', SEATS, BEST),
    'centre': Policy('centre', SEATS, CENTRE, delay=CENTRE_DELAY),
    'earliest deadline': Policy('earliest deadline', BY_DEADLINE, NOWHERE),
    'first come': Policy('first come', ALL, NOWHERE),
    'least recently used': Policy('least recently used', SEATS, SLACK, on_demand=True),
}


def admitting(admission: int, compiled: bool = True) -> SiteFunctions:
    """Return a site's functions for a gateway that admits as a baseline does."""
    plain: tuple[Callable[..., Any], ...]
    if admission == SEATS:
        return site_functions(compiled)
    plain = (_take_by_deadline, _start_by_deadline) if admission == BY_DEADLINE else \
        (policy_kernels.take_all, _start_in_order)
    found = machine_code((*MODULES, policy_kernels), plain, inline=False) if compiled else None
    take, start = found or plain
    return site_functions(compiled)._replace(take_seat=take, start_batch=start)


def _take_by_deadline(site: SiteArrays, asked: Asked, now: float) -> Seat:
    return policy_kernels.take_by_deadline(site, asked, now)


def _start_by_deadline(site: SiteArrays, executor: int, now: float) -> int:
    return policy_kernels.start_shrunk(site, executor, now, True)


def _start_in_order(site: SiteArrays, executor: int, now: float) -> int:
    return policy_kernels.start_shrunk(site, executor, now, False)
