# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""
DSCCS: the cut of the layer graph with the least latency, as a minimum cut.

After Liang et al., "DNN surgery: accelerating DNN inference on the edge
through layer partitioning" (IEEE Transactions on Cloud Computing, 2023): the
graph's layers are divided into those of the robot and, behind them, those of
the server; the sum of the robot's time, the time of what crosses and the
server's time is least.  That is a minimum cut, since nothing overlaps.
"""
from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_array
from scipy.sparse.csgraph import breadth_first_order, maximum_flow

from intradp_ros.schedule.cost import CostModel, LinkModel, WireCost
from intradp_ros.schedule.schedule import ROBOT, SERVER
from intradp_ros.systems.sharing.partition.partition import Partition, RowStage
from intradp_ros.wire.codecs.names import NONE

# Capacities are 32-bit whole numbers in scipy: the robot's whole time is so many units.
_UNITS = 10**8
_NEVER = 10**9
_SOURCE, _SINK = 0, 1
Bools = npt.NDArray[np.bool_]


class _Network:
    """Edges of a flow network; capacities in seconds, None for endless ones."""

    def __init__(self, total: float) -> None:
        self.total = total
        self.edges: dict[tuple[int, int], int] = {}

    def add(self, start: int, stop: int, seconds: float | None) -> None:
        capacity = _NEVER if seconds is None else round(_UNITS * seconds / self.total)
        self.edges[start, stop] = min(_NEVER, self.edges.get((start, stop), 0) + capacity)

    def cross(self, made: int, sent: int, readers: Sequence[int], seconds: float) -> None:
        """Let a value cross once, by a node of its own, if robot makes and server reads it."""
        if readers:
            self.add(made, sent, seconds)
        for reader in readers:
            self.add(sent, reader, None)

    def come_back(self, made: int, sent: int, readers: Sequence[int], seconds: float) -> None:
        """Let a value cross once if server makes and robot reads it."""
        if readers:
            self.add(sent, made, seconds)
        for reader in readers:
            self.add(reader, sent, None)

    def robot_side(self, nodes: int) -> npt.NDArray[np.bool_]:
        """Return which nodes are on the source's side of a minimum cut."""
        # Indices of 32 bits, which SciPy before 1.13 wants of a graph.
        starts, stops = np.array(list(self.edges), dtype=np.int32).T
        matrix = csr_array((np.array(list(self.edges.values()), dtype=np.int32),
                            (starts, stops)), (nodes, nodes))
        residual = matrix - maximum_flow(matrix, _SOURCE, _SINK).flow
        residual.data = np.maximum(residual.data, 0)
        residual.eliminate_zeros()
        found = np.zeros(nodes, dtype=bool)
        found[breadth_first_order(residual, _SOURCE, return_predecessors=False)] = True
        return found


def min_cut(cost: CostModel, link: LinkModel, *, returns: bool = False,
            hidden: float = 0.0) -> Partition:
    """
    Return the partition of least robot time + transfers + server time, one after another.

    Values cross once however many operators read them, nothing goes back to
    the robot but the outputs.  With `returns` values may go back as well, so
    that the robot does again what makes much of little, an upsampling say.
    `hidden` is the part of the transfers that is taken to cost nothing.
    """
    split = cost.split
    count = len(split.operators)
    network = _Network(sum(float(table[-1]) for table in cost.seconds[ROBOT]) or 1.0)
    for index in range(count):
        network.add(_SOURCE, 2 + index, float(cost.seconds[SERVER][index][-1]))
        network.add(2 + index, _SINK, float(cost.seconds[ROBOT][index][-1]))
    for value, readers in split.graph.consumers.items():
        producer = split.graph.producer.get(value)
        made = _SOURCE if producer is None else 2 + producer
        nodes = [2 + reader for reader in readers]
        up, down = ((1 - hidden) * _seconds(cost, value, rate, link)
                    for rate in (link.up, link.down))
        network.cross(made, 2 + count + value, nodes, up)
        if producer is None:
            continue
        wanted = [_SOURCE] if value in split.graph.output_values else []
        network.come_back(made, 2 + count + len(split.rows) + value,
                          wanted + nodes * returns, down)
        for node in nodes * (not returns):
            network.add(node, made, None)
    robot = network.robot_side(2 + count + 2 * len(split.rows))
    return placed(~robot[2:2 + count])


def _seconds(cost: CostModel, value: int, rate: float, link: LinkModel) -> float:
    nbytes = crossing_bytes(cost, value, cost.split.rows[value])
    return nbytes / rate + link.overhead + link.delay


def placed(on_server: Bools) -> Partition:
    """
    Return the partition in which each operator runs whole on one side, shape (operators,).

    Each run of neighbours on the same side is a stage of share 1 or 0.  A
    side never waits for a stage in which it does nothing, so any placement
    can be written like this, in the graph's own order of operators.
    """
    stages, stop = [], 0
    for server, run in groupby(on_server.tolist()):
        stop += sum(1 for _ in run)
        stages.append(RowStage(stop, 0.0 if server else 1.0))
    return Partition(tuple(stages))


def crossing_bytes(cost: CostModel, value: int, rows: int) -> float:
    """Return the bytes that so many rows of a value put on the link."""
    return cost.split.nbytes(value, rows) * cost.wire.get((value, NONE), WireCost()).ratio
