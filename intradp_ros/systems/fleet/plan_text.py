# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""Plans as plain data: for people and programs, and as the file that a fleet runs."""
from __future__ import annotations

from typing import Any

from intradp_ros.planning.fleet_costs import FleetCosts
from intradp_ros.systems.fleet.planner import FleetPlan, stage_plan


def plan_data(costs: FleetCosts, plan: FleetPlan) -> dict[str, Any]:
    """Return a plan's stages and what is predicted of it, in seconds, bytes and joules."""
    return {
        'name': plan.name, 'latency': plan.latency, 'rate': plan.rate, 'bound': plan.bound,
        'meets': plan.meets, 'joules': dict(plan.joules), 'memory': dict(plan.memory),
        'busy': dict(plan.busy), 'carried': dict(plan.carried),
        'discipline': type(plan.order.discipline).__name__.lower(), 'figures': 'modelled',
        'stages': [_stage(costs, plan, first, last) for first, last in _runs(plan.placement)]}


def describe(costs: FleetCosts, plan: FleetPlan) -> str:
    """Return a plan in a few lines for people; all figures are modelled."""
    lines = [
        f'{costs.model.name}: {1e3 * plan.latency:.0f} ms (not below {1e3 * plan.bound:.0f}), '
        f'{plan.rate:.3g} a second, {sum(plan.joules.values()):.3g} J an inference (modelled); '
        f'the target is {"met" if plan.meets else "missed"}']
    for number, stage in enumerate(plan_data(costs, plan)['stages'], 1):
        who = ', '.join(name if len(stage['samples']) == 1 else f'{name} {count}'
                        for name, count in stage['samples'].items())
        lines.append(f'{number}. {who}: {stage["first"]} to {stage["last"]}')
    return '\n'.join(lines)


def plan_file(costs: FleetCosts, plan: FleetPlan) -> dict[str, Any]:
    """
    Return what `StagePlan.from_json` reads, and with it what is predicted.

    A model without operators (a layer profile) has the prediction only.
    """
    predicted = {'predicted': plan_data(costs, plan)}
    if not all(node.operators for node in costs.model.nodes):
        return predicted
    return stage_plan(costs, plan.placement, plan.order).to_json() | predicted


def _runs(placement: tuple[int, ...]) -> list[tuple[int, int]]:
    """Return first and last node of each stage."""
    edges = [0, *(k for k in range(1, len(placement)) if placement[k] != placement[k - 1]),
             len(placement)]
    return [(a, b - 1) for a, b in zip(edges, edges[1:])]


def _stage(costs: FleetCosts, plan: FleetPlan, first: int, last: int) -> dict[str, Any]:
    nodes = costs.model.nodes
    shares = zip(costs.topology.names, costs.groups[plan.placement[first]].tolist())
    return {'first': nodes[first].name.split('..')[0], 'last': nodes[last].name.split('..')[-1],
            'nodes': last - first + 1, 'samples': {name: count for name, count in shares if count}}
