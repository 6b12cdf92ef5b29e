# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""Services over several sites (step S3 of the paper), modelled only."""
from __future__ import annotations

import numpy as np

from intradp_ros.systems.serving import placement_kernels
from intradp_ros.systems.serving.placement import demand, place, Placement, untouched
from intradp_ros.systems.serving.placement_kernels import Demand, Floats


def pooled(d: Demand, found: Placement, rate: Floats) -> tuple[float, Placement]:
    """
    Return what services over several sites would add.

    What is left of all lanes and devices is one device with one lane, on which services answer
    `rate` requests per second; returned are the requests per second, and that lane's placement.
    """
    left = untouched(d)
    for lane, service in found.places:
        placement_kernels.put(d, left, lane, service)
    asked = np.maximum(0.0, np.where(d.travels, left.all_, 0.0))[None, :]
    rest = demand(asked, rate[None, :] * float(left.lane.sum()), d.nbytes,
                  np.array([max(0.0, float(left.room.sum()))]), shares=d.shares)
    one = place(rest)
    return one.answered, one
