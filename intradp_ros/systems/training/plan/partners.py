# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""
Which devices can train together: those of which every two can send to each other.

The run-time connects all devices of a plan with each other, and all of them sum the norm of the
gradients.  So devices of two networks that nothing joins are never in one plan.
"""
from __future__ import annotations

from collections.abc import Collection
from itertools import combinations

from intradp_ros.cluster.topology import Topology

#: Sets of devices that are planned for; those with the most devices come first.
MOST_SETS = 32


def partners(topology: Topology, needed: Collection[str] = ()) -> list[tuple[str, ...]]:
    """
    Return the largest sets of devices that can train together and have all that are needed.

    Where all are joined, which is usual, it is one set.  Names are in the topology's order.
    """
    names, paths = topology.names, topology.paths
    joined = [(a, b) for a, b in combinations(names, 2) if (a, b) in paths and (b, a) in paths]
    if 2 * len(joined) == len(names) * (len(names) - 1):
        return [names]
    import networkx
    graph = networkx.Graph(joined)
    graph.add_nodes_from(names)
    found = [tuple(name for name in names if name in clique)
             for clique in map(set, networkx.find_cliques(graph)) if clique.issuperset(needed)]
    return sorted(found, key=lambda clique: (-len(clique), clique))[:MOST_SETS]
