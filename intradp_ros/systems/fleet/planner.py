# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""
Plans of a model for a fleet and a target, judged by the event simulator, best first.

The pool holds what phase 1 found and what planners that take no time would
do, each with its transfers ordered (phase 2).  Where others are compared
with, their placements are in it too; then the plan that is taken is never
predicted worse than any of them.
"""
from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
import math

import numpy as np

from intradp_ros.planning.baselines import fastest, quick_baselines
from intradp_ros.planning.estimate import estimate, excess
from intradp_ros.planning.fleet_costs import FleetCosts, NO_POWER
from intradp_ros.planning.held_memory import HeldMemory
from intradp_ros.planning.packing import packings
from intradp_ros.planning.placement_tasks import flow_name, placement_tasks
from intradp_ros.planning.quality import Scale, score
from intradp_ros.planning.transfer_order import fair_sharing, order_transfers, TransferOrder, TRIES
from intradp_ros.schedule.event_simulator import FAIR
from intradp_ros.schedule.stage_plan import Member, PlanError, Stage, StagePlan, Turn
from intradp_ros.schedule.stage_tasks import StageTasks
from intradp_ros.systems.fleet.partitioner import (
    KEPT,
    NothingFits,
    partition,
    reference_scale,
    slow_baselines,
)

#: What our plan is called among those of other planners.
OURS = 'fleet'
FAIR_SHARING = 'fair sharing'
#: Micro-batches that plans with a rate are judged by.
STREAM = 8


@dataclass(frozen=True)
class FleetPlan:
    """
    A placement with its schedule, and what is predicted of it.

    `latency` is that of a round, or the longest of a micro-batch where a rate
    is wanted; `rate` the inferences per second that it could sustain; `joules` (of an inference),
    `memory` and `busy` seconds (of a micro-batch) by device, `carried` bytes (of a
    micro-batch) by medium.
    `bound` is below the latency of any order of its transfers.  `memory`
    counts all frames in flight, and may be simulated when it is first read.
    `beyond` says which limit is exceeded, if any is; a plan that meets its
    target keeps all limits.
    """

    name: str
    placement: tuple[int, ...]
    order: TransferOrder
    latency: float
    rate: float
    joules: Mapping[str, float]
    memory: Mapping[str, float]
    busy: Mapping[str, float]
    carried: Mapping[str, float]
    bound: float
    score: float
    meets: bool
    beyond: str = ''


@dataclass(frozen=True)
class FleetPlans:
    """
    Our plan, others of the front, and what each baseline comes to (None: fits nowhere).

    Nothing is in `others` where no comparison was asked for.
    """

    best: FleetPlan
    front: tuple[FleetPlan, ...]
    others: Mapping[str, FleetPlan | None]


def plan_fleet(costs: FleetCosts, kept: int = KEPT, compare: bool = False,
               seeds: Sequence[Sequence[int]] = ()) -> FleetPlans:
    """
    Plan a model for the target of `costs`; to `compare`, with every other planner too.

    `seeds` are placements that are judged too.

    :raises NothingFits: if no placement was found within the limits.
    """
    check_size(costs, kept)
    scale = reference_scale(costs)
    rivals = dict(quick_baselines(fastest(costs)))
    if compare:
        rivals |= slow_baselines(fastest(costs), kept)
    judged = _judged(costs, scale, kept, [
        *map(list, seeds), *(p.tolist() for p in packings(costs)),
        *(p.tolist() for p in rivals.values() if p is not None)])
    best = judged[0]
    others: dict[str, FleetPlan | None] = {
        name: None if placement is None else judge(costs, scale, name, placement.tolist())
        for name, placement in rivals.items()} if compare else {}
    if compare:
        others[FAIR_SHARING] = judge(costs, scale, FAIR_SHARING, best.placement)
    return FleetPlans(best, tuple(_front(judged)), others)


#: The most that is planned for: work and tables grow with their squares and products.
MOST_DEVICES, MOST_SAMPLES, MOST_BATCHES, MOST_KEPT = 32, 64, 256, 1000
_MOST_TASKS = 200_000


def check_counts(samples: int, batches: int, kept: int) -> None:
    """
    Check what a plan is asked for before a network is read.

    :raises ValueError: if a number is too large, or none; the text says which.
    """
    for what, count, most in (
            ('samples in a micro-batch', samples, MOST_SAMPLES),
            ('micro-batches', batches, MOST_BATCHES), ('placements kept', kept, MOST_KEPT)):
        if count > most:
            raise ValueError(f'there are {count} {what}: plans are made for at most {most}')
        if count < 1:
            raise ValueError(f'there are {count} {what}: plans need at least 1')


def check_size(costs: FleetCosts, kept: int = KEPT) -> None:
    """
    Check that a plan is made in bounded time and memory.

    :raises ValueError: if not; the text says which number is too large.
    """
    check_counts(costs.samples, costs.batches, kept)
    if (devices := len(costs.topology.devices)) > MOST_DEVICES:
        raise ValueError(f'there are {devices} devices in the fleet: plans are made for at most '
                         f'{MOST_DEVICES}')
    tasks = costs.batches * costs.samples * len(costs.model.nodes)
    if tasks > _MOST_TASKS:
        raise ValueError(f'{costs.batches} micro-batches of {costs.samples} samples over '
                         f'{len(costs.model.nodes)} nodes are {tasks} tasks, at most '
                         f'{_MOST_TASKS} are simulated: take fewer batches or samples')


#: Parts of the targets and limits that are searched for where plans as judged are beyond them.
_TIGHTER = (1.0, 0.85, 0.6)
#: So many times as many placements are judged where limits bind; of all searches so many.
_WIDER, _MOST_JUDGED = 12, 8
#: A target that all plans miss by this part of it is not searched for with parts of it.
_NEAR = 0.25
#: Joules of estimates may be so much above those as judged: such plans are judged too.
_LOOSE = 1.1


def _judged(costs: FleetCosts, scale: Scale, kept: int, seeds: list[list[int]],
            ) -> list[FleetPlan]:
    """
    Return plans within the limits as judged, best first.

    The search knows estimates.  Where what it finds misses the target or
    breaks a limit once it is judged, it searches again with a part of them,
    and for the fastest plan at last.

    :raises NothingFits: if no plan keeps the limits.
    """
    quality, found = costs.quality, dict[tuple[int, ...], FleetPlan | None]()
    most = kept * _MOST_JUDGED
    seeds = seeds + [[d] * len(costs.model.nodes) for d in range(len(costs.topology.devices))]
    why: NothingFits | None = None
    first, wider, *tighter = (_with_part(costs, part) for part in (1.0, *_TIGHTER))
    within = [p for p, over in zip(seeds, excess(first, estimate(costs, seeds))) if over <= 0]

    @cache
    def is_near(placement: tuple[int, ...]) -> bool:
        plan = found[placement]
        latency, rate = (plan.latency, plan.rate) if plan else _quickly(costs, placement)
        return bool(quality.lateness(np.array([latency]), np.array([1 / rate]))[0] < _NEAR)

    bound, near = True, True
    for search in [first, wider, fastest(first), *tighter]:
        if search is wider and not bound or search in tighter and not near:
            continue
        try:
            wide = kept * (_WIDER if any(map(_is_beyond, found.values())) else 1)
            pool = partition(search, wide, seeds).placements.tolist()
        except NothingFits as error:
            why, pool = why or error, []
        fitting = 0
        for placement in map(tuple, within + pool):
            if fitting >= kept + len(within) or len(found) >= most:
                break  # the best of the estimates come first
            if placement not in found:
                found[placement] = _judged_if_held(costs, scale, placement)
            fitting += not _is_beyond(found[placement])
        bound = any(map(_is_beyond, found.values()))
        near = any(map(is_near, sorted(found, key=lambda p: found[p] is None)))
        fits = [plan for plan in found.values() if plan and not plan.beyond]
        if fits:
            judged = _with_ordered_transfers(costs, scale, fits)
            if judged[0].meets and (search is not first or not bound):
                return judged
    if not fits:
        least = next(((plan or judge(costs, scale, OURS, placement)).beyond
                      for placement, plan in found.items()), '')
        raise NothingFits(f'no division of {costs.model.name or "the model"} fits once all '
                          f'frames in flight are counted: {least}; allow more, or add a device'
                          ) if least else why or NothingFits('nothing fits')
    return judged


def _with_part(costs: FleetCosts, part: float) -> FleetCosts:
    """Return the costs with this part of each target and limit, those of energy a bit looser."""
    quality = costs.quality
    limits = {d.name: part * limit for d, limit in
              zip(costs.topology.devices, costs.memory_limits.tolist())
              if part < 1 and limit < math.inf}
    return replace(costs, quality=replace(
        quality, latency=part * quality.latency, rate=quality.rate / part,
        energy={n: part * _LOOSE * limit for n, limit in quality.energy.items()},
        memory={**quality.memory, **limits}))


def _judged_if_held(costs: FleetCosts, scale: Scale, placement: tuple[int, ...],
                    ) -> FleetPlan | None:
    """Return a placement as judged; nothing where some device would hold more than it may."""
    memory = HeldMemory(costs, placement)
    return None if memory.beyond(costs.memory_limits.tolist()) else judge(
        costs, scale, OURS, placement, memory=memory)


def _is_beyond(plan: FleetPlan | None) -> bool:
    return plan is None or bool(plan.beyond)


def _beyond(costs: FleetCosts, joules: Mapping[str, float], memory: Mapping[str, float]) -> str:
    """Return which limit a plan as judged is beyond; nothing if it keeps all."""
    held = (not isinstance(memory, HeldMemory)
            or memory.beyond(costs.memory_limits.tolist()))
    for device, most, energy in zip(costs.topology.names, costs.memory_limits.tolist(),
                                    costs.energy_limits.tolist()):
        if held and memory[device] > most:
            return (f'{device} would hold {memory[device] / 1e6:.4g} MB of its '
                    f'{most / 1e6:.4g} MB')
        if joules[device] > energy * (1 + 1e-9):
            return f'{device} would take {joules[device]:.4g} J of its {energy:.4g} J'
    return ''


#: Orders that are tried of every plan that might be the best; how many are searched further.
QUICK, _SEARCHED = 6, 1


def _with_ordered_transfers(costs: FleetCosts, scale: Scale, fair: list[FleetPlan],
                            ) -> list[FleetPlan]:
    """
    Return the plans, best first, with transfers ordered where that might make one the best.

    Orders by rule are tried of all of these, others of those that are then the best.
    """
    judged = sorted(fair, key=lambda plan: plan.score)
    for tries, most in ((QUICK, len(judged)), (TRIES, _SEARCHED)):
        best = min(plan.score for plan in judged)
        for place, plan in enumerate(judged[:most]):
            if (_optimistic_score(costs, scale, plan) <= best
                    and plan.latency > plan.bound * _AT_BOUND):
                ordered = judge(costs, scale, plan.name, plan.placement, tries,
                                plan.memory)
                if not ordered.beyond and ordered.score < plan.score:
                    judged[place] = ordered
                    best = min(best, ordered.score)
        judged.sort(key=lambda plan: plan.score)
    return judged


#: A latency that is so near the bound is not improved any more.
_AT_BOUND = 1.002


def _optimistic_score(costs: FleetCosts, scale: Scale, plan: FleetPlan) -> float:
    """Return a score that no order of transfers is expected to be below."""
    joules = sum(plan.joules.values())
    if not costs.quality.fastest:  # joules of waiting fall with the latency
        joules *= 0.9
    return float(score(costs.quality, scale, np.array([joules]), np.array([plan.bound]),
                       np.array([1 / plan.rate]))[0])


def judge(costs: FleetCosts, scale: Scale, name: str, placement: Sequence[int],
          tries: int = 0, memory: Mapping[str, float] | None = None) -> FleetPlan:
    """
    Return what a placement comes to, with so many orders of its transfers tried, or none.

    `memory` is what its devices hold, where that is known.
    """
    quality, interval = costs.quality, _interval(costs)
    tasks, batches = _tasks(costs, placement)
    order = (order_transfers(tasks, costs.topology, tries) if tries
             else fair_sharing(tasks, costs.topology))
    found = estimate(costs, [placement])
    period = float(found.period[0])
    joules = _joules(costs, order, batches, interval)
    latency, periods = np.array([order.latency]), np.array([period])
    value = score(quality, scale, np.array([sum(joules.values())]), latency, periods)
    names = costs.topology.names
    if memory is None:
        memory = HeldMemory(costs, placement)
    beyond = _beyond(costs, joules, memory)
    return FleetPlan(
        name, tuple(int(group) for group in placement), order, order.latency,
        1 / period if period else math.inf, joules, memory,
        dict(zip(names, found.busy[0].tolist())),
        {medium: nbytes / batches for medium, nbytes in order.played.carried.items()},
        order.bound, float(value[0]),
        not (beyond or quality.lateness(latency, periods)[0] > 0), beyond)


def _tasks(costs: FleetCosts, placement: Sequence[int]) -> tuple[StageTasks, int]:
    """Return the tasks by which a placement is judged, and their number of micro-batches."""
    interval = _interval(costs)
    batches = max(costs.batches, STREAM) if interval else costs.batches
    return placement_tasks(costs, placement, batches, interval), batches


def _quickly(costs: FleetCosts, placement: Sequence[int]) -> tuple[float, float]:
    """Return latency and rate of a placement whose transfers share the media fairly."""
    period = float(estimate(costs, [placement]).period[0])
    order = fair_sharing(_tasks(costs, placement)[0], costs.topology)
    return order.latency, 1 / period if period else math.inf


def _interval(costs: FleetCosts) -> float:
    return costs.samples / costs.quality.rate if costs.quality.rate else 0.0


def _joules(costs: FleetCosts, order: TransferOrder, batches: int, interval: float,
            ) -> dict[str, float]:
    """Return modelled joules of an inference by device; a device that does nothing sleeps."""
    played, found = order.played, {}
    lasts = batches * interval or played.makespan
    for device in costs.topology.devices:
        power, name = device.power or NO_POWER, device.name
        active = played.busy[name] > 0 or name == costs.source
        found[name] = float(power.joules(lasts if active else 0.0, played.busy[name],
                                         played.sending[name], played.receiving[name],
                                         )) / batches / costs.samples
    return found


def _front(plans: Sequence[FleetPlan]) -> list[FleetPlan]:
    """Return the plans that no other one beats in latency, rate and energy."""
    def figures(plan: FleetPlan) -> tuple[float, float, float]:
        return plan.latency, -plan.rate, sum(plan.joules.values())

    kept: list[FleetPlan] = []
    for plan in plans:
        own = figures(plan)
        beaten = any(all(a <= b for a, b in zip(figures(other), own)) and figures(other) != own
                     for other in plans)
        if not beaten and all(figures(other) != own for other in kept):
            kept.append(plan)
    return kept


def stage_plan(costs: FleetCosts, placement: Sequence[int],
               order: TransferOrder | None = None) -> StagePlan:
    """
    Return a placement as a plan that devices can run, its transfers in an order that was found.

    Without one, they go in the order of inferences.

    :raises PlanError: if the model is a profile without operators.
    """
    if not all(node.operators for node in costs.model.nodes):
        raise PlanError(f'{costs.model.name} is a profile without a network: there is nothing '
                        'to run')
    stages: list[Stage] = []
    edges = [k for k in range(1, len(placement)) if placement[k] != placement[k - 1]]
    for a, b in zip([0, *edges], [*edges, len(placement)]):
        operators = sorted(op for node in costs.model.nodes[a:b] for op in node.operators)
        shares = costs.groups[int(placement[a])]
        stages.append(Stage(tuple(operators), tuple(
            Member(name, int(share)) for name, share in zip(costs.topology.names, shares)
            if share)))
    return StagePlan(costs.model.digest, costs.source, costs.samples, tuple(stages),
                     _turns(costs, order) if order else ())


def _turns(costs: FleetCosts, order: TransferOrder) -> tuple[Turn, ...] | None:
    """Return the order of a plan's transfers; None where they share their media fairly."""
    if order.discipline == FAIR:
        return None
    values = {flow_name(number): flow.value for number, flow in enumerate(costs.model.flows)}
    return tuple(Turn(values[name], source, target, lead * costs.samples)
                 for (name, source, target), lead in order.leads.items() if lead)
