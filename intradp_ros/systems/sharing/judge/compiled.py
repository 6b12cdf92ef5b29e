# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""
The kernels as machine code, where numba is installed.

The modules of `kernels` are plain Python, which is quick enough to lower one
partition.  A search that judges thousands of them takes what is compiled
here: the same code, some two hundred times faster.  Numba keeps it on disk,
next to this file or in the user's cache folder; where it can write nowhere
it is compiled anew by every process.
"""
from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
import hashlib
import inspect
import logging
from types import FunctionType, SimpleNamespace
from typing import Any

from intradp_ros.systems.sharing.judge.kernels import (
    bands,
    judging,
    play,
    recurrence,
    rows,
    side_programs,
    transfers,
)
from intradp_ros.systems.sharing.judge.records import (
    Charges,
    Clock,
    Layout,
    LinkCost,
    Tables,
    Work,
)

_MODULES = (rows, bands, transfers, side_programs, play, judging, recurrence)
_log = logging.getLogger(__name__)


def judge(t: Tables, p: Layout, w: Work, link_cost: LinkCost,
          charges: Charges, clock: Clock) -> None:
    """Write the programs of a partition and play them."""
    judging.judge(t, p, w, link_cost, charges, clock)


def complete(t: Tables, p: Layout, w: Work, link_cost: LinkCost,
             charges: Charges, clock: Clock) -> float:
    """Return T_robot^N in seconds of a partition without bands."""
    return recurrence.complete(t, p, w, link_cost, charges, clock)


@lru_cache(maxsize=1)
def kernels() -> Any:
    """Return what is called: compiled, or plain where numba is not installed."""
    try:
        from numba import njit
        from numba.extending import register_jitable
    except ImportError:
        _log.warning('numba is not installed, so planning takes minutes instead of seconds: '
                     'install it with "pip install numba"')
        return SimpleNamespace(compiled=False, judge=judge, complete=complete)
    _let_be_called(register_jitable)
    return SimpleNamespace(compiled=True, judge=_compiled(njit, judge),
                           complete=_compiled(njit, complete))


@lru_cache(maxsize=1)
def _let_be_called(register_jitable: Callable[..., Any]) -> None:
    """Tell numba that all kernels may be called from compiled code."""
    for function in _functions():
        register_jitable(error_model='numpy', forceinline=True)(function)


def _functions() -> list[FunctionType]:
    return [item for module in _MODULES for item in vars(module).values()
            if isinstance(item, FunctionType) and item.__module__ == module.__name__]


def _compiled(njit: Callable[..., Any], function: Any) -> Any:
    """
    Compile a function on its first call, with all that it calls.

    Its name carries a digest of all sources, since numba's cache looks only
    at the file of the function itself and would keep stale callees.  What it
    calls is compiled once for its types: numba would compile functions that
    are decorated themselves once more for every constant that they are called
    with, and calls from here itself once more than those from a kernel.
    """
    digest = hashlib.sha256(''.join(map(inspect.getsource, _MODULES)).encode()).hexdigest()[:12]
    twin = FunctionType(function.__code__, function.__globals__, function.__name__)
    twin.__qualname__ = f'{function.__name__}_{digest}'
    options = {'error_model': 'numpy', 'no_cfunc_wrapper': True}
    try:
        return njit(cache=True, **options)(twin)
    except RuntimeError:  # no folder that could be written to
        return njit(**options)(twin)
