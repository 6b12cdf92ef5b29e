# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""From two measured profiles to a schedule book: the planner's whole job as one function."""
from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from functools import lru_cache, partial
import hashlib
import json
import math
from pathlib import Path
from typing import Any

from intradp_ros.core.cache_folder import cache_folder, code_digest, keep
from intradp_ros.core.workers import worker_pool
from intradp_ros.graph.serialise import graph_from_json
from intradp_ros.power.power_states import PowerStates
from intradp_ros.profiling.profile import Profile
from intradp_ros.schedule.cost import CostModel
from intradp_ros.schedule.schedule import ROBOT, SERVER
from intradp_ros.split.split_graph import split_received
from intradp_ros.systems.sharing.book.book import ScheduleBook
from intradp_ros.systems.sharing.book.make_book import (
    bandwidth_grid,
    book_of,
    plan_point,
    PlanningProblem,
    Point,
    Progress,
    search_at,
)
from intradp_ros.systems.sharing.book.repricing import moved_by, repriced, value_lost
from intradp_ros.systems.sharing.book.uneven_speeds import RATIOS, SpeedCondition
from intradp_ros.systems.sharing.judge.energy import (
    EnergyUnderDeadline,
    latency,
    Objective,
    Weighted,
)
from intradp_ros.systems.sharing.judge.judge import make_ready
from intradp_ros.systems.sharing.partition.partition import Partition
from intradp_ros.systems.sharing.search.bounds import Relaxation
from intradp_ros.systems.sharing.search.pool import Aim
from intradp_ros.systems.sharing.strategies import DEADLINE

LATENCY, ENERGY, WEIGHTED = 'latency', 'energy', 'weighted'
OBJECTIVES = (LATENCY, ENERGY, WEIGHTED)
#: A book is made anew where that should win this part of an inference's time.
WORTH_PLANNING = 0.1
#: Packages that decide what a book says.
_PLANNING = ('graph', 'link', 'profiling', 'runtime', 'schedule', 'split', 'systems/sharing',
             'wire')


@dataclass(frozen=True, slots=True)
class PlanRequest:
    """
    Everything that a book depends on, as plain data that crosses processes.

    Graph and profiles as JSON; bandwidths in Mbit/s, delay and overhead in
    seconds; a lossy encoding if the user allows one.  `objective` is one of
    `OBJECTIVES`: seconds, joules within the deadline (seconds), or both added
    up with a joule worth `seconds_per_joule`.  At most `extra` bandwidths are
    added where schedules change (by default half as many as there are).
    Bandwidths are those up; `down_ratio` times as much goes down.
    """

    graph: str
    robot: str
    server: str
    low: float = 1.0
    high: float = 400.0
    points: int = 20
    delay: float = 0.0
    overhead: float = 0.0
    seed: int = 0
    lossy: str = ''
    shared_air: bool = False
    objective: str = LATENCY
    deadline: float = DEADLINE
    seconds_per_joule: float = 0.0
    extra: int | None = None
    down_ratio: float = 1.0

    @property
    def key(self) -> str:
        """Name of the book that this request leads to, with the code that is installed."""
        text = json.dumps({**asdict(self), 'code': code_digest(*_PLANNING)}, sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:20]


def book_from_profiles(request: PlanRequest, folder: Path | None = None,
                       progress: Progress | None = None, workers: int = 1,
                       former: ScheduleBook | None = None) -> str:
    """
    Return the book as JSON text, from disk if it was made before.

    Bandwidths are planned in `workers` processes; the book does not depend
    on their number.  Where a `former` book of the model has lost no more than
    `WORTH_PLANNING`, it is that one with what its schedules take now.

    :raises ValueError: if graph or profiles are malformed or do not belong together.
    """
    path = (folder or cache_folder() / 'books') / f'{request.key}.json'
    try:
        return ScheduleBook.load(path).to_json()
    except (OSError, ValueError):  # none yet, or a damaged one: plan
        pass
    if former and (kept := _kept(former, request)):
        return kept.to_json()
    book = _plan(request, progress, workers)
    text = book.to_json()
    keep(path, text)
    return text


def change_of(book: ScheduleBook, request: PlanRequest) -> float:
    """
    Return the largest part by which a request moves a prediction of a book.

    Infinite where it asks for another kind of book.

    :raises ValueError: if graph or profiles are malformed or do not belong together.
    """
    setting, _, digest = _prepared(request)
    kind = digest, setting.cost.split.axis, request.objective, request.lossy, request.shared_air
    if kind != (book.digest, book.axis, book.objective, book.lossy, book.shared_air):
        return math.inf
    return moved_by(book, setting)


def _kept(former: ScheduleBook, request: PlanRequest) -> ScheduleBook | None:
    """Return a former book with what its schedules take now, None if that is not worth it."""
    if change_of(former, request) == math.inf:
        return None
    setting, relaxation, _ = _prepared(request)
    if value_lost(former, setting, relaxation) > WORTH_PLANNING:
        return None
    return repriced(former, setting)


def _plan(request: PlanRequest, progress: Progress | None, workers: int) -> ScheduleBook:
    setting, _, digest = _prepared(request)
    extra = request.points // 2 if request.extra is None else request.extra
    make_ready(setting.cost)
    with _mapping(workers) as mapped:
        return book_of(
            setting, digest, bandwidth_grid(request.low, request.high, request.points),
            extra=extra, ratios=RATIOS if request.objective == LATENCY else (),
            objective=request.objective, progress=progress,
            plan=partial(mapped, partial(_plan_point, request)),
            search_many=lambda known, where: mapped(partial(_seek, request, known), where))


@contextmanager
def _mapping(workers: int) -> Iterator[Callable[..., Iterable[Any]]]:
    """Provide a `map` that runs in this process or in several."""
    if workers == 1:
        yield map
        return
    with worker_pool(workers) as pool:
        yield pool.map


def _plan_point(request: PlanRequest, mbps: float) -> Point:
    setting, relaxation, _ = _prepared(request)
    return plan_point(setting, relaxation, mbps)


def _seek(request: PlanRequest, known: Sequence[Partition], where: SpeedCondition) -> Partition:
    setting, _, _ = _prepared(request)
    return search_at(setting, known, where)


@lru_cache(maxsize=1)
def _prepared(request: PlanRequest) -> tuple[PlanningProblem, Relaxation, str]:
    """Return what all bandwidths of a request have in common, and the digest of its model."""
    robot, server = Profile.from_json(request.robot), Profile.from_json(request.server)
    if (robot.digest, robot.axis) != (server.digest, server.axis):
        raise ValueError(
            f'the profiles do not belong together: robot has model {robot.digest} split along '
            f'axis {robot.axis}, server {server.digest} along axis {server.axis}')
    split = split_received(graph_from_json(request.graph), robot.axis)
    cost = CostModel.from_profiles(split, {ROBOT: robot, SERVER: server})
    aim = Aim(_objective(request, robot.power), robot.power, request.deadline, request.seed,
              request.lossy)
    setting = PlanningProblem(cost, request.delay, request.overhead, request.shared_air, aim,
                              request.down_ratio)
    return setting, Relaxation(cost), robot.digest


def _objective(request: PlanRequest, power: PowerStates) -> Objective:
    if request.objective == LATENCY:
        return latency
    if request.objective == ENERGY:
        return EnergyUnderDeadline(power, request.deadline)
    if request.objective == WEIGHTED:
        return Weighted(power, request.seconds_per_joule)
    raise ValueError(f'no objective {request.objective!r}; there are {", ".join(OBJECTIVES)}')
