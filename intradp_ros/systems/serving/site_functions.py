# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""The functions that decide at a site, as machine code where numba is installed."""
from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any, NamedTuple

import numpy as np

from intradp_ros.core.numba_compile import machine_code
from intradp_ros.systems.serving import site_arrays
from intradp_ros.systems.serving.site_arrays import Asked, Floats, Place, Seat, SiteArrays
from intradp_ros.systems.serving.site_kernels import dispatch, seats
from intradp_ros.systems.serving.site_kernels.dispatch import Flags, SiteRows

#: What a module that calls the kernels from machine code of its own names to `machine_code`.
MODULES = (site_arrays, seats, dispatch)


class SiteFunctions(NamedTuple):
    """Those of `site_kernels.seats` and `site_kernels.dispatch`."""

    take_seat: Callable[[SiteArrays, Asked, float], Seat]
    start_batch: Callable[[SiteArrays, int, float], int]
    end_batch: Callable[[SiteArrays, int, float], int]
    withdraw: Callable[[SiteArrays, int, float], bool]
    expire: Callable[[SiteArrays, float], int]
    lose: Callable[[SiteArrays, int, float], int]
    outlook: Callable[[SiteArrays, float, Floats, Floats, Floats], None]
    choose_site: Callable[[SiteRows, int, float, Flags, int, float], int]
    choose_roomier: Callable[[SiteRows, int, float, Flags, int, float, float], int]


@cache
def site_functions(compiled: bool = True) -> SiteFunctions:
    """Return the functions, compiled on their first call, or plain: both do the same."""
    found = machine_code(MODULES, PLAIN, inline=False) if compiled else None
    return SiteFunctions(*found) if found else PLAIN


def warmed() -> SiteFunctions:
    """Return the functions after each was called once: nobody waits for a compiler then."""
    functions = site_functions()
    site = site_arrays.make_site([Place(0, 0, 1, (1.0,))], 1, 1)
    rows = dispatch.make_rows(2, 1)
    seat = functions.take_seat(site, Asked(1, 0, 9.0, 0), 1.0)
    functions.withdraw(site, seat.row, 1.0)
    functions.expire(site, 1.0)
    functions.start_batch(site, 0, 1.0)
    functions.end_batch(site, 0, 2.0)
    functions.lose(site, 0, 2.0)
    functions.outlook(site, 1.0, np.zeros(1), np.zeros(1), np.zeros(1))
    functions.choose_site(rows, 0, 1.0, np.zeros(2, np.bool_), 1, 1.0)
    functions.choose_roomier(rows, 0, 1.0, np.zeros(2, np.bool_), 1, 1.0, 1.0)
    return functions


def _take_seat(site: SiteArrays, asked: Asked, now: float) -> Seat:
    return seats.take_seat(site, asked, now)


def _start_batch(site: SiteArrays, executor: int, now: float) -> int:
    return seats.start_batch(site, executor, now)


def _end_batch(site: SiteArrays, executor: int, now: float) -> int:
    return seats.end_batch(site, executor, now)


def _withdraw(site: SiteArrays, row: int, now: float) -> bool:
    return seats.withdraw(site, row, now)


def _expire(site: SiteArrays, now: float) -> int:
    return seats.expire(site, now)


def _lose(site: SiteArrays, executor: int, now: float) -> int:
    return seats.lose(site, executor, now)


def _outlook(site: SiteArrays, now: float, ends: Floats, shares: Floats, least: Floats) -> None:
    seats.outlook(site, now, ends, shares, least)


def _choose_site(rows: SiteRows, service: int, remaining: float, visited: Flags, number: int,
                 now: float) -> int:
    return dispatch.choose_site(rows, service, remaining, visited, number, now)


def _choose_roomier(rows: SiteRows, service: int, remaining: float, visited: Flags, number: int,
                    now: float, seconds: float) -> int:
    return dispatch.choose_roomier(rows, service, remaining, visited, number, now, seconds)


PLAIN: Any = SiteFunctions(_take_seat, _start_batch, _end_batch, _withdraw, _expire, _lose,
                           _outlook, _choose_site, _choose_roomier)
