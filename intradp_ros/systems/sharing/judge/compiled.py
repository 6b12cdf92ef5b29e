# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""
The kernels as machine code, where numba is installed.

The modules of `kernels` are plain Python, which is quick enough to lower one
partition.  A search that judges thousands of them takes what is compiled
here: the same code, some two hundred times faster.
"""
from __future__ import annotations

from functools import lru_cache
import logging
from types import SimpleNamespace
from typing import Any

from intradp_ros.core.numba_compile import machine_code
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
    Clock,
    Layout,
    LinkCost,
    StepCosts,
    Tables,
    Work,
)

_MODULES = (rows, bands, transfers, side_programs, play, judging, recurrence)
_log = logging.getLogger(__name__)


def judge(t: Tables, p: Layout, w: Work, link_cost: LinkCost,
          costs: StepCosts, clock: Clock) -> None:
    """Write the programs of a partition and play them."""
    judging.judge(t, p, w, link_cost, costs, clock)


def complete(t: Tables, p: Layout, w: Work, link_cost: LinkCost,
             costs: StepCosts, clock: Clock) -> float:
    """Return T_robot^N in seconds of a partition without bands."""
    return recurrence.complete(t, p, w, link_cost, costs, clock)


@lru_cache(maxsize=1)
def kernels() -> Any:
    """Return what is called: compiled, or plain where numba is not installed."""
    compiled = machine_code(_MODULES, (judge, complete), allocates=False)
    if compiled is None:
        _log.warning('numba is not installed, so planning takes minutes instead of seconds: '
                     'install it with "pip install numba"')
        return SimpleNamespace(compiled=False, judge=judge, complete=complete)
    return SimpleNamespace(compiled=True, judge=compiled[0], complete=compiled[1])
