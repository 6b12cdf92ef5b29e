# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""Ours and the baselines in the simulator."""
from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
import math
import sys
from types import FunctionType, ModuleType

import numpy as np

from intradp_lab.serving import policy_kernels
from intradp_lab.serving.policy_kernels import (
    ALL,
    BEST,
    BY_DEADLINE,
    CENTRE,
    IDLE_GOODPUT,
    IN_TURN,
    More,
    NOWHERE,
    SEATS,
    SLACK,
)
from intradp_ros.core.numba_compile import machine_code
from intradp_ros.systems.serving import world, world_kernels
from intradp_ros.systems.serving.arrivals import Arrivals, arrivals
from intradp_ros.systems.serving.site_functions import MODULES
from intradp_ros.systems.serving.site_kernels.dispatch import MAX_HOPS
from intradp_ros.systems.serving.world import (
    Fault,
    Playing,
    Report,
    RowsHeard,
    Run,
    SimulatedSite,
    World,
)
from intradp_ros.systems.serving.world_kernels import HISTORY

#: Seconds until a centre has decided, as the paper says of ten servers.
CENTRE_DELAY = 0.1
#: What chooses the sizes of a site's batches, by place, from what came to it.
Rechoose = Callable[[SimulatedSite, Arrivals], Sequence[int]]


@dataclass(frozen=True, slots=True)
class Policy:
    """
    How requests are admitted and where they go; the numbers are those of `policy_kernels`.

    `on_demand`: services are loaded when they are asked for, in place of those that were not
    asked for longest.  `delay`: seconds until a centre has decided.
    """

    name: str
    admission: int = SEATS
    choice: int = SLACK
    delay: float = 0.0
    on_demand: bool = False


OURS = Policy('ours')
POLICIES: Mapping[str, Policy] = {one.name: one for one in (
    OURS, Policy('nearest', SEATS, NOWHERE), Policy('round robin', SEATS, IN_TURN),
    Policy('idle goodput', SEATS, IDLE_GOODPUT), Policy('best of old rows', SEATS, BEST),
    Policy('centre', SEATS, CENTRE, delay=CENTRE_DELAY),
    Policy('earliest deadline', BY_DEADLINE, NOWHERE), Policy('first come', ALL, NOWHERE),
    Policy('least recently used', SEATS, SLACK, on_demand=True))}


@dataclass(frozen=True, slots=True)
class Memory:
    """Bytes and seconds of loading by service, and bytes of an executor, for loading on demand."""

    nbytes: tuple[float, ...] = ()
    load: tuple[float, ...] = ()
    room: float = math.inf


def replay(where: World, asked: Arrivals, policy: Policy = OURS, faults: Sequence[Fault] = (),
           compiled: bool = True, rechoose: Rechoose | None = None, every: float = 60.0,
           rows: RowsHeard | None = None, memory: Memory = Memory()) -> Report:
    """
    Play all requests by a policy, as `world.replay` does by ours.

    `rechoose` returns the sizes of a site's batches, by place, from what came in the last
    `every` seconds; it is asked that often.
    """
    if policy == OURS and rechoose is None:
        return world.replay(where, asked, faults, compiled, rows)
    playing = Playing(where, asked, faults, rows, _runner() if compiled else _kernels().run,
                      policy.admission == SEATS)
    sites, count = playing.sites, len(where.sites)
    nbytes, load = (np.array([*values, *(0.0,) * where.services][:where.services])
                    for values in (memory.nbytes, memory.load))
    more = More(
        policy.admission, policy.choice, policy.delay, policy.on_demand, nbytes, load,
        np.full(sites.alive.shape, memory.room),
        np.full(sites.queued.shape, -np.inf), np.zeros(count), np.zeros((count, HISTORY)),
        np.arange(count, dtype=np.int64).reshape(-1, 1).copy(),
        np.zeros(((MAX_HOPS + 1) * len(asked.time) if rechoose else 0, 4)),
        np.zeros(1, np.int64), np.zeros(count))
    playing.behaviour = playing.behaviour._replace(more=more)
    if policy.on_demand:
        sites.ready[:] = np.inf
    until = float(asked.time[0]) if len(asked.time) else 0.0
    while rechoose is not None and until <= asked.time.max(initial=-math.inf):
        logged, until = int(more.logged[0]), until + every
        playing.run(until)
        log = more.log[logged:more.logged[0]]
        for i, site in enumerate(where.sites):
            own = log[log[:, 1] == i]
            if len(own):
                now = replace(site, places=tuple(replace(place, size=int(size)) for place, size in
                                                 zip(site.places, sites.wanted[i])))
                sites.wanted[i, :len(site.places)] = rechoose(now, arrivals(
                    own[:, 0], own[:, 3] - own[:, 0], 0, own[:, 2]))
    playing.run()
    return playing.report()


@cache
def _kernels() -> ModuleType:
    """Return the kernels of the simulator with those of other policies in their places."""
    made = ModuleType(f'{policy_kernels.__name__}_in_world')
    made.__file__ = world_kernels.__file__
    scope = vars(made)
    for module in (world_kernels, policy_kernels):
        for name, item in vars(module).items():
            if isinstance(item, FunctionType) and item.__module__ == module.__name__:
                scope[name] = FunctionType(item.__code__, scope, name)
            elif not name.startswith('__') and not isinstance(scope.get(name), FunctionType):
                scope[name] = item
    sys.modules[made.__name__] = made  # numba looks for it when it reads what it has kept
    return made


@cache
def _runner() -> Run:
    """Return the loop: machine code, or plain where numba is not installed."""
    made = _kernels()
    compiled = machine_code((*MODULES, world_kernels, policy_kernels, made), (made.run,),
                            inline=False, allocates=False)
    run: Run = compiled[0] if compiled else made.run
    return run
