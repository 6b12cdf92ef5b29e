# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""
Phase 1: which group of devices runs which nodes (Dora, section 4.1).

The paper's dynamic program leaves the order of devices, the loop over the
stages and the sum of what does not add up undefined.  Here nodes are placed
one after another, and a state is the group of the last node and the set of
devices in use; no order of devices is assumed, and a device may come again.
A state keeps the placements that are among the best K in the objective, in
latency, period, energy, or in what is left of memory and energy.  The best
ones are then improved by moving intervals of nodes and swapping devices.
"""
from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
import math

import numpy as np
import numpy.typing as npt

from intradp_ros.planning.baselines import Placement, quick_baselines
from intradp_ros.planning.estimate import Estimate, estimate, excess
from intradp_ros.planning.fleet_costs import FleetCosts
from intradp_ros.planning.quality import Scale, score

Numbers = npt.NDArray[np.float64]
Indices = npt.NDArray[np.int64]

#: The paper's K (Fig. 17: 0.3 % from K = 15).
KEPT = 10
#: Placements that are gone on from at each node, over all states, times groups.
_WIDTH = 3000
#: What a limit that is exceeded weighs; no lateness is worth it.
_FORBIDDEN = 1e12
_ROUNDS = 12
_MOST_INTERVALS = 900


class NothingFits(ValueError):
    """No placement was found within the limits of memory and energy; the text says more."""


@dataclass(frozen=True)
class RankedPlacements:
    """Placements, best first, and their figures; `scale` is what scores are parts of."""

    placements: Indices
    found: Estimate
    scores: Numbers
    scale: Scale


def partition(costs: FleetCosts, kept: int = KEPT,
              seeds: npt.ArrayLike | None = None) -> RankedPlacements:
    """
    Return up to `kept` placements that might be the best once media are scheduled.

    `seeds` are placements to start from besides, shape (any, nodes).

    :raises NothingFits: if none was found within the limits.
    """
    scale = reference_scale(costs)
    reached = _search(costs, scale, kept)
    singles = np.repeat(np.arange(len(costs.topology.devices))[:, None],
                        len(costs.model.nodes), axis=1)
    starts = [reached, singles]
    if seeds is not None and len(np.asarray(seeds)):
        starts.append(np.asarray(seeds, dtype=np.int64))
    pool = np.unique(np.concatenate(starts), axis=0)
    pool = _improve(costs, scale, _spread(costs, scale, pool, kept))
    return _ranked(costs, scale, pool, kept)


def reference_scale(costs: FleetCosts) -> Scale:
    """
    Return the most joules and the least seconds of any device alone (1 where none are known).

    The least joules may be next to none, where a device has no power that is known: as the
    unit of lateness they would make lateness weigh nothing.
    """
    singles = np.repeat(np.arange(len(costs.topology.devices))[:, None],
                        len(costs.model.nodes), axis=1)
    alone = estimate(costs, singles)
    reached = np.isfinite(alone.latency)
    joules = float(alone.joules[reached].sum(axis=1).max(initial=0.0))
    seconds = float(alone.latency[reached].min(initial=math.inf))
    return Scale(joules if 0 < joules < math.inf else 1.0,
                 seconds if 0 < seconds < math.inf else 1.0)


def scores_of(costs: FleetCosts, scale: Scale, found: Estimate) -> Numbers:
    """Return the objective of placements, with what limits that are exceeded cost."""
    over = excess(costs, found)
    with np.errstate(invalid='ignore'):
        plain = score(costs.quality, scale, found.joules.sum(axis=1), found.latency,
                      found.period)
    return np.where(np.isfinite(plain), plain, _FORBIDDEN) + _FORBIDDEN * np.where(
        over > 0, 1 + over, 0.0)


def _search(costs: FleetCosts, scale: Scale, kept: int) -> Indices:
    """Place all nodes, one after another; return placements within the limits, if any."""
    count = len(costs.groups)
    width = max(20 * kept, _WIDTH // count)
    used = (costs.groups > 0) @ (1 << np.arange(costs.groups.shape[1]))
    placed, masks = np.zeros((1, 0), dtype=np.int64), np.zeros(1, dtype=np.int64)
    left = np.cumsum([n.weight_bytes for n in costs.model.nodes][::-1])[::-1]
    for number in range(len(costs.model.nodes)):
        rows = np.repeat(np.arange(len(placed)), count)
        groups = np.tile(np.arange(count), len(placed))
        placed = np.column_stack([placed[rows], groups])
        masks = masks[rows] | used[groups]
        after = left[number + 1] if number + 1 < len(left) else 0.0
        state = groups * (1 << len(costs.topology.devices)) + masks
        # In the order of their parents, so that what is alike stands together.
        chosen = np.sort(_kept(costs, scale, estimate(costs, placed), state, after, kept, width))
        placed, masks = placed[chosen], masks[chosen]
        if not len(chosen):
            return np.zeros((0, len(costs.model.nodes)), dtype=np.int64)
    return placed


def _kept(costs: FleetCosts, scale: Scale, found: Estimate, state: Indices, after: float,
          kept: int, width: int) -> npt.NDArray[np.intp]:
    """Return the rows that are worth going on from."""
    room = np.maximum(costs.memory_limits - found.memory, 0).sum(axis=1)
    fits = np.nonzero((excess(costs, found) <= 0) & (room >= after * (1 - 1e-9)))[0]
    found = found[fits]
    _, state = np.unique(state[fits], return_inverse=True)
    fullness = np.maximum((found.memory / costs.memory_limits).max(axis=1),
                          (found.joules / costs.energy_limits).max(axis=1))
    criteria = [scores_of(costs, scale, found), found.latency, found.joules.sum(axis=1),
                fullness]
    if costs.quality.rate or costs.batches > 1:  # the busiest part, and the way of one alone
        slowest = np.maximum(found.busy.max(axis=1), found.media.max(axis=1, initial=0.0))
        criteria += [slowest, found.latency - (costs.batches - 1) * slowest]
    rank = np.full(len(fits), len(fits))
    for values in criteria:
        rank = np.minimum(rank, _ranks(values, state))
    order = np.lexsort((criteria[0], rank))[:width]
    chosen: npt.NDArray[np.intp] = fits[order[rank[order] < kept]]
    return chosen


def _ranks(values: Numbers, state: npt.NDArray[np.intp]) -> npt.NDArray[np.intp]:
    """Return how many others of its state each row comes after."""
    order = np.argsort(values, kind='stable')
    small = state[order].astype(np.uint16) if len(state) < 1 << 16 else state[order]
    order = order[np.argsort(small, kind='stable')]  # 16 bits are sorted in linear time
    states = state[order]
    first = np.concatenate([[True], states[1:] != states[:-1]])[:len(order)]
    starts = np.maximum.accumulate(np.where(first, np.arange(len(order)), 0))
    ranks = np.empty(len(order), dtype=np.intp)
    ranks[order] = np.arange(len(order)) - starts
    return ranks


def _spread(costs: FleetCosts, scale: Scale, pool: Indices, kept: int) -> Indices:
    """Return the placements that are among the best `kept` in any respect."""
    found = estimate(costs, pool)
    scores = scores_of(costs, scale, found)
    penalty = _FORBIDDEN * excess(costs, found)
    joules = found.joules.sum(axis=1)
    chosen = [np.argsort(scores, kind='stable')[:kept]]
    chosen += [np.argsort(values + penalty, kind='stable')[:kept // 2 + 1]
               for values in (found.latency, found.period, joules)]
    return pool[np.unique(np.concatenate(chosen))]


def _improve(costs: FleetCosts, scale: Scale, pool: Indices) -> Indices:
    """Return the pool with each placement taken to where no move makes it better."""
    everything = [pool]
    current = pool
    scores = scores_of(costs, scale, estimate(costs, current))
    for _ in range(_ROUNDS):
        moves = [_moves(costs, placement) for placement in current]
        owner = np.repeat(np.arange(len(current)), [len(m) for m in moves])
        tried = np.concatenate(moves)
        if not len(tried):  # one device: nothing can be elsewhere
            break
        reached = scores_of(costs, scale, estimate(costs, tried))
        best = np.full(len(current), -1)
        order = np.lexsort((reached, owner))
        first = np.concatenate([[True], owner[order][1:] != owner[order][:-1]])
        best[owner[order[first]]] = order[first]
        better = np.nonzero(reached[best] < scores - 1e-12)[0]
        if not len(better):
            break
        current, unique = np.unique(tried[best[better]], axis=0, return_index=True)
        scores = reached[best[better]][unique]
        everything.append(current)
    return np.unique(np.concatenate(everything), axis=0)


def _moves(costs: FleetCosts, placement: Indices) -> Indices:
    """Return what is one move away: an interval to another group, or two groups swapped."""
    nodes, groups = len(placement), len(costs.groups)
    starts, ends = _intervals(placement, groups)
    inside = (np.arange(nodes) >= starts[:, None]) & (np.arange(nodes) < ends[:, None])
    moved = [np.where(inside, group, placement) for group in range(groups)]
    present = np.unique(placement)
    swaps = [np.where(placement == a, b, np.where(placement == b, a, placement))
             for a in present for b in range(groups) if a != b]
    tried = np.concatenate([*moved, np.array(swaps).reshape(-1, nodes)])
    different: Indices = tried[(tried != placement).any(axis=1)]
    return different


def _intervals(placement: Indices, groups: int) -> tuple[Indices, Indices]:
    """Return starts and ends of the intervals to move: all, or those that touch a border."""
    nodes = len(placement)
    starts, ends = np.triu_indices(nodes + 1, 1)
    if len(starts) * groups > _MOST_INTERVALS:
        border = np.ones(nodes + 1, dtype=bool)
        border[1:-1] = placement[1:] != placement[:-1]
        near = border[starts] | border[ends] | (ends - starts == 1)
        starts, ends = starts[near], ends[near]
    return starts, ends


def _ranked(costs: FleetCosts, scale: Scale, pool: Indices, kept: int) -> RankedPlacements:
    """Return the best of the pool: half by the objective, the others spread over the front."""
    found = estimate(costs, pool)
    scores = scores_of(costs, scale, found)
    allowed = np.nonzero(excess(costs, found) <= 0)[0]
    if not len(allowed):
        raise NothingFits(_why_nothing_fits(costs))
    by_score = allowed[np.argsort(scores[allowed], kind='stable')]
    front = _front(found, by_score)
    chosen = list(dict.fromkeys([*by_score[:(kept + 1) // 2], *front, *by_score]))[:kept]
    chosen.sort(key=lambda k: float(scores[k]))
    rows = np.array(chosen)
    return RankedPlacements(pool[rows], found[rows], scores[rows], scale)


def _front(found: Estimate, rows: npt.NDArray[np.intp]) -> list[int]:
    """Return the rows that no other one beats in latency, period and energy, best score first."""
    figures_of = np.column_stack([found.latency, found.period, found.joules.sum(axis=1)])[rows]
    front: list[int] = []
    for k, own in enumerate(figures_of):
        beaten = ((figures_of <= own).all(axis=1) & (figures_of < own).any(axis=1)).any()
        if not beaten:
            front.append(int(rows[k]))
    return front


def _why_nothing_fits(costs: FleetCosts) -> str:
    need, have = costs.model.weight_bytes, costs.memory_limits.sum()
    text = (f'no division of {costs.model.name or "the model"} fits: it has {need / 1e6:.1f} MB '
            f'of weights, the devices have {have / 1e6:.1f} MB of memory in all')
    if costs.quality.energy:
        text += ', and there are limits of energy'
    return text + '; allow more, or add a device'


def contention_free(costs: FleetCosts, kept: int) -> Placement | None:
    """Return what phase 1 alone chooses, every pair of devices at its peak rate."""
    try:
        best: Placement = partition(replace(costs, contended=False), kept).placements[0]
    except NothingFits:
        return None
    return best


def baselines(costs: FleetCosts, kept: int) -> Mapping[str, Placement | None]:
    """Return the placement of each other planner, None where it finds none that fits."""
    return {**quick_baselines(costs), **slow_baselines(costs, kept)}


def slow_baselines(costs: FleetCosts, kept: int) -> Mapping[str, Placement | None]:
    """Return the placement of who takes as long as phase 1."""
    return {'contention-free': contention_free(costs, kept)}
