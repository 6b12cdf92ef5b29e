# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""
Plans in as few nodes as suffice: finer ones where nothing fits or memory binds.

Neighbours are merged by weights and work, which knows no device's room.  So
where room is short the plan is made again in finer nodes, whose borders
include those of divisions of the whole network that fit.
"""
from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from intradp_ros.planning.coarsening import cuts_left, merged, MOST_NODES, SMALL
from intradp_ros.planning.estimate import estimate, excess
from intradp_ros.planning.fleet_costs import FleetCosts
from intradp_ros.planning.packing import packings, Placement
from intradp_ros.systems.fleet.partitioner import KEPT, NothingFits, reference_scale
from intradp_ros.systems.fleet.planner import FleetPlans, judge, MOST_DEVICES, plan_fleet

#: Finer nodes have this part of the share that small ones may have; there are so many times more.
_FINER, _MORE = 0.25, 1.5
#: The network as it is is planned for up to so many times as many nodes.
_FINEST = 3
#: Divisions of the whole network that finer nodes keep the borders of.
_WITNESSES = 3


def plan_in_nodes(fine: FleetCosts, small: float = SMALL, most: int = MOST_NODES,
                  kept: int = KEPT, compare: bool = False) -> tuple[FleetCosts, FleetPlans]:
    """
    Merge small nodes of `fine` and plan; where room is short plan again in finer nodes.

    Returns the costs of the nodes that were planned in, and the plans.

    :raises NothingFits: if no placement was found within the limits, in any nodes.
    :raises ValueError: if there are too many devices, samples or micro-batches.
    """
    found: tuple[FleetCosts, FleetPlans] | None = None
    why: NothingFits | None = None
    for number, (costs, seeds) in enumerate(_steps(fine, small, most)):
        if found and (number > 1 or not memory_binds(*found)):
            break
        try:
            plans = plan_fleet(costs, kept, compare, seeds)
        except NothingFits as error:
            why = why or error
            continue
        if found is None or _rank(plans) < _rank(found[1]):
            found = costs, plans
    if found is None:
        raise why or NothingFits('nothing fits')
    return found


def of_few_devices(costs: FleetCosts) -> FleetCosts:
    """
    Return the costs of as many devices as plans are made for.

    These are the source and those that it can talk to, in turns the fastest and those
    with the most memory.
    """
    topology, most = costs.topology, MOST_DEVICES
    if len(topology.devices) <= most:
        return costs
    joined = [d for d in topology.devices if d.name != costs.source
              and {(costs.source, d.name), (d.name, costs.source)} <= set(topology.paths)]
    seconds = {d.name: float(costs.model.seconds(d, 1).sum()) for d in joined}
    by_speed = sorted(joined, key=lambda d: seconds[d.name])
    by_memory = sorted(joined, key=lambda d: (-d.memory_bytes, seconds[d.name]))
    turns = (d.name for pair in zip(by_speed, by_memory) for d in pair)
    kept = [costs.source, *dict.fromkeys(turns)][:most]
    return replace(costs, topology=topology.without(set(topology.names) - set(kept)))


def _rank(plans: FleetPlans) -> tuple[bool, float]:
    return not plans.best.meets, plans.best.score


def memory_binds(costs: FleetCosts, plans: FleetPlans) -> bool:
    """Return whether some device has no room for one more of the largest nodes."""
    largest = max(weights + costs.samples * node.working_bytes for node, weights in
                  zip(costs.model.nodes, costs.weight_bytes.tolist()))
    held = np.array([plans.best.memory[name] for name in costs.topology.names])
    return bool((costs.memory_limits - held < largest).any())


def _steps(fine: FleetCosts, small: float, most: int,
           ) -> Iterator[tuple[FleetCosts, list[list[int]]]]:
    """Yield costs of ever finer nodes, each with placements of them that fit."""
    nodes = len(fine.model.nodes)
    cuts = cuts_left(fine.model, small, most)
    yield replace(fine, model=merged(fine.model, cuts)), []
    if len(cuts) + 1 == nodes:
        return
    witnesses = _witnesses(fine)
    borders = {k + 1 for placement in witnesses
               for k in np.flatnonzero(np.diff(placement)).tolist()}
    cuts = sorted(borders.union(cuts_left(fine.model, _FINER * small, int(_MORE * most))))
    yield (replace(fine, model=merged(fine.model, cuts)),
           [placement[[0, *cuts]].tolist() for placement in witnesses])
    if len(cuts) + 1 < nodes <= _FINEST * most:
        yield fine, [placement.tolist() for placement in witnesses]


def _witnesses(fine: FleetCosts) -> list[Placement]:
    """Return a few divisions of the whole network that keep the limits as judged, best first."""
    options = packings(fine)
    within = excess(fine, estimate(fine, options)) <= 0
    scale = reference_scale(fine)
    judged = [(plan.score, k) for k in np.flatnonzero(within).tolist()
              if not (plan := judge(fine, scale, '', options[k].tolist())).beyond]
    return [options[k] for _, k in sorted(judged)[:_WITNESSES]]
