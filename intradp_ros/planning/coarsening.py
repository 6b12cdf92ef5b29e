# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""
Fewer nodes to plan for: neighbours that are small together become one (Dora, section 4.1).

Nodes stand in an order in which each reads only earlier ones.  Anyone who
merges neighbours of that order never makes a circle, whatever the branches.
"""
from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from intradp_ros.planning.planning_model import Flow, Node, PlanningModel, SOURCE, working_bytes

#: The paper's: what has less than this of all parameters may be merged.
SMALL = 0.05
#: The most nodes that planning takes less than a second for.
MOST_NODES = 60
_MOST_MERGED = 0.2


def coarsen(model: PlanningModel, small: float = SMALL, most: int = MOST_NODES) -> PlanningModel:
    """
    Merge neighbours that have together less than `small` of the weights, and of the work.

    Of all neighbours those are merged first between which most bytes would
    cross; so the borders that are left are the cheap ones.  Parallel branches
    stay apart.  Where more than `most` nodes are left `small` grows, and when
    that does not suffice branches are merged too.

    :raises ValueError: if `small` is negative or `most` is not above zero.
    """
    return merged(model, cuts_left(model, small, most))


def cuts_left(model: PlanningModel, small: float = SMALL, most: int = MOST_NODES) -> list[int]:
    """Return the cuts that `coarsen` leaves, ascending; a cut stands before its node."""
    if not small >= 0 or most < 1:
        raise ValueError(f'small must be 0 or more and most 1 or more, got {small} and {most}')
    crossing = _crossing_bytes(model)
    for joined in (_joined(model), np.ones(len(model.nodes), dtype=bool)):
        least = small
        cuts = _merge(model, crossing, joined, least)
        while len(cuts) + 1 > most and least < _MOST_MERGED:
            least = max(1.5 * least, SMALL)
            cuts = _merge(model, crossing, joined, least)
        if len(cuts) < most:
            break
    return cuts


def merged(model: PlanningModel, cuts: Sequence[int]) -> PlanningModel:
    """Return the model with one node between each two cuts; a cut stands before its node."""
    edges = [0, *cuts, len(model.nodes)]
    owner = np.repeat(np.arange(len(edges) - 1), np.diff(edges))
    nodes = tuple(_one(model, a, b) for a, b in zip(edges, edges[1:]))
    return PlanningModel(model.name, nodes, _outer(model.flows, owner), model.digest, {
        device: {batch: tuple(np.add.reduceat(np.asarray(seconds), edges[:-1]).tolist())
                 for batch, seconds in tables.items()}
        for device, tables in model.measured.items()})


def _one(model: PlanningModel, first: int, last: int) -> Node:
    nodes = model.nodes[first:last]
    if len(nodes) == 1:
        return nodes[0]
    return Node(f'{nodes[0].name}..{nodes[-1].name}', sum(n.seconds for n in nodes),
                sum(n.weight_bytes for n in nodes), working_bytes(model, first, last),
                tuple(sorted(op for n in nodes for op in n.operators)))


def _outer(flows: Sequence[Flow], owner: npt.NDArray[np.int64]) -> tuple[Flow, ...]:
    def place(end: int) -> int:
        return SOURCE if end == SOURCE else int(owner[end])

    found = []
    for flow in flows:
        maker = place(flow.maker)
        readers = tuple(dict.fromkeys(place(reader) for reader in flow.readers
                                      if maker == SOURCE or place(reader) != maker))
        if readers:
            found.append(Flow(maker, readers, flow.nbytes, flow.value))
    return tuple(found)


def _crossing_bytes(model: PlanningModel) -> npt.NDArray[np.float64]:
    """Return the bytes of the values that are needed behind each cut, shape (nodes,)."""
    crossing = np.zeros(len(model.nodes) + 1)
    for flow in model.flows:
        last = max((len(model.nodes) if r == SOURCE else r) for r in flow.readers)
        crossing[flow.maker + 1:last + 1] += flow.nbytes
    return crossing


def _joined(model: PlanningModel) -> npt.NDArray[np.bool_]:
    """Return for each node whether it reads what the node before it made, shape (nodes,)."""
    joined = np.zeros(len(model.nodes), dtype=bool)
    for flow in model.flows:
        if flow.maker != SOURCE and flow.maker + 1 in flow.readers:
            joined[flow.maker + 1] = True
    return joined


def _merge(model: PlanningModel, crossing: npt.NDArray[np.float64],
           joined: npt.NDArray[np.bool_], small: float) -> list[int]:
    """Return the cuts that are left, ascending."""
    weights = np.array([n.weight_bytes for n in model.nodes])
    work = np.array([n.seconds for n in model.nodes])
    limits = small * weights.sum(), small * work.sum()
    cuts = set(range(1, len(model.nodes)))
    for cut in sorted(cuts, key=lambda c: (-crossing[c], c)):
        start = next(c for c in range(cut - 1, -1, -1) if c == 0 or c in cuts)
        end = next(c for c in range(cut + 1, len(model.nodes) + 1)
                   if c == len(model.nodes) or c in cuts)
        fits = (weights[start:end].sum() <= limits[0] and work[start:end].sum() <= limits[1])
        if joined[cut] and fits:
            cuts.remove(cut)
    return sorted(cuts)
