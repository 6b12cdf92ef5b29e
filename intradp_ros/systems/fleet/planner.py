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
from dataclasses import dataclass

import numpy as np

from intradp_ros.planning.baselines import fastest, quick_baselines
from intradp_ros.planning.estimate import estimate, excess
from intradp_ros.planning.fleet_costs import FleetCosts, NO_POWER
from intradp_ros.planning.placement_tasks import flow_name, placement_tasks
from intradp_ros.planning.quality import Scale, score
from intradp_ros.planning.training_tasks import training_tasks
from intradp_ros.schedule.event_simulator import FAIR
from intradp_ros.schedule.stage_plan import Member, PlanError, Stage, StagePlan, Turn
from intradp_ros.systems.fleet.contention_free import slow_baselines
from intradp_ros.systems.fleet.partitioner import (
    KEPT,
    partition,
    reference_scale,
)
from intradp_ros.systems.fleet.transfer_order import (
    fair_sharing,
    order_transfers,
    TransferOrder,
    TRIES,
)

#: What our plan is called beside those of other planners.
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
    `bound` is below the latency of any order of its transfers.
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


@dataclass(frozen=True)
class FleetPlans:
    """
    Our plan, others of the front, and what each baseline comes to (None: fits nowhere).

    Nothing is in `others` where no comparison was asked for.
    """

    best: FleetPlan
    front: tuple[FleetPlan, ...]
    others: Mapping[str, FleetPlan | None]


def plan_fleet(costs: FleetCosts, kept: int = KEPT, compare: bool = False) -> FleetPlans:
    """
    Plan a model for the target of `costs`; to `compare`, with every other planner too.

    Raises
    ------
    NothingFits
        If no placement was found within the limits.

    """
    scale = reference_scale(costs)
    rivals = dict(quick_baselines(fastest(costs)))
    if compare:
        rivals |= slow_baselines(fastest(costs), kept)
    seeds = [placement for placement in rivals.values() if placement is not None]
    pool = partition(costs, kept, seeds or None).placements
    pool = np.unique(np.concatenate([pool, np.array(seeds, dtype=np.int64).reshape(
        -1, pool.shape[1])]), axis=0)
    pool = pool[excess(costs, estimate(costs, pool)) <= 0]
    judged = _with_ordered_transfers(costs, scale, [
        judge(costs, scale, OURS, placement) for placement in pool.tolist()])
    best = judged[0]
    others: dict[str, FleetPlan | None] = {
        name: None if placement is None else judge(costs, scale, name, placement.tolist())
        for name, placement in rivals.items()} if compare else {}
    if compare:
        others[FAIR_SHARING] = judge(costs, scale, FAIR_SHARING, best.placement)
    return FleetPlans(best, tuple(_front(judged)), others)


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
            if _hope(costs, scale, plan) <= best and plan.latency > plan.bound * _AT_BOUND:
                judged[place] = judge(costs, scale, plan.name, plan.placement, tries)
                best = min(best, judged[place].score)
        judged.sort(key=lambda plan: plan.score)
    return judged


#: A latency that is so near the bound is not improved any more.
_AT_BOUND = 1.002


def _hope(costs: FleetCosts, scale: Scale, plan: FleetPlan) -> float:
    """Return a score that no order of transfers is expected to be below."""
    joules = sum(plan.joules.values())
    if not costs.quality.fastest:  # joules of waiting fall with the latency
        joules *= 0.9
    return float(score(costs.quality, scale, np.array([joules]), np.array([plan.bound]),
                       np.array([1 / plan.rate]))[0])


def judge(costs: FleetCosts, scale: Scale, name: str, placement: Sequence[int],
          tries: int = 0) -> FleetPlan:
    """Return what a placement comes to, with so many orders of its transfers tried, or none."""
    quality, interval = costs.quality, _interval(costs)
    batches = max(costs.batches, STREAM) if interval else costs.batches
    tasks = (training_tasks(costs, placement) if costs.training
             else placement_tasks(costs, placement, batches, interval))
    order = (order_transfers(tasks, costs.topology, tries) if tries
             else fair_sharing(tasks, costs.topology))
    found = estimate(costs, [placement])
    period = order.latency / batches / costs.samples if costs.training else float(found.period[0])
    joules = _joules(costs, order, batches, interval)
    latency, periods = np.array([order.latency]), np.array([period])
    value = score(quality, scale, np.array([sum(joules.values())]), latency, periods)
    names = costs.topology.names
    return FleetPlan(
        name, tuple(int(group) for group in placement), order, order.latency, 1 / period, joules,
        dict(zip(names, found.memory[0].tolist())), dict(zip(names, found.busy[0].tolist())),
        {medium: nbytes / batches for medium, nbytes in order.played.carried.items()},
        order.bound, float(value[0]), not quality.lateness(latency, periods)[0] > 0)


def _interval(costs: FleetCosts) -> float:
    stream = costs.quality.rate and not costs.training
    return costs.samples / costs.quality.rate if stream else 0.0


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

    Raises
    ------
    PlanError
        If the model is a profile without operators, or it is for training.

    """
    if costs.training:
        raise PlanError('plans of training are not run by the fleet')
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
