# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""
All on the robot, all on the server, or one cut between layers.

The cut is that of Neurosurgeon (Kang et al., ASPLOS 2017): every place of
the chain of layers is a candidate, the fastest is taken.
"""
from __future__ import annotations

import numpy as np
import numpy.typing as npt

from intradp_ros.schedule.cost import CostModel, LinkModel
from intradp_ros.schedule.schedule import ROBOT, SERVER
from intradp_ros.split.local_operator import SplitGraph
from intradp_ros.systems.sharing.judge.judge import best_of, judge, Judged
from intradp_ros.systems.sharing.partition import partition as make
from intradp_ros.systems.sharing.partition.crossing import crossing_bytes


def best_local(cost: CostModel, link: LinkModel) -> Judged:
    """Judge everything on the robot."""
    return judge(cost, link, make.local(len(cost.split.operators)))


def best_offload(cost: CostModel, link: LinkModel) -> Judged:
    """Judge the whole input to the server, everything there, the result back."""
    return judge(cost, link, make.offload(len(cost.split.operators)))


def _bytes_back(split: SplitGraph) -> npt.NDArray[np.int64]:
    """Return the bytes of outputs that operators behind each position produce."""
    produced = np.zeros(len(split.operators), dtype=np.int64)
    for value in split.graph.output_values:
        producer = split.graph.producer.get(value)
        if producer is not None:
            produced[producer] += split.graph.values[value].nbytes
    back: npt.NDArray[np.int64] = produced.sum() - np.cumsum(produced)
    return back


def best_cut(cost: CostModel, link: LinkModel, *, checked: int = 6) -> Judged:
    """
    Find the best single layer cut: robot before it, server after it.

    All positions are ranked by compute before, bytes across, compute after
    and bytes back; the best `checked` are judged by the simulator.
    """
    robot = np.cumsum([table[-1] for table in cost.seconds[ROBOT]])
    server = np.cumsum([table[-1] for table in cost.seconds[SERVER]])
    estimate = (robot + crossing_bytes(cost.split) / link.up + server[-1] - server
                + _bytes_back(cost.split) / link.down)
    ranked = np.argsort(estimate[:-1], kind='stable')[:checked]
    count = len(cost.split.operators)
    return best_of([judge(cost, link, make.cut(count, int(i) + 1)) for i in ranked]
                   or [best_local(cost, link)])
