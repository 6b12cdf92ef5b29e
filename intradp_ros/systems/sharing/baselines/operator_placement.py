# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""Whole operators on one side or the other: what systems do that do not split them."""
from __future__ import annotations

from itertools import groupby

import numpy as np
import numpy.typing as npt

from intradp_ros.schedule.cost import CostModel, WireCost
from intradp_ros.systems.sharing.partition.partition import Partition, RowStage
from intradp_ros.wire.codecs.names import NONE

Bools = npt.NDArray[np.bool_]


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
