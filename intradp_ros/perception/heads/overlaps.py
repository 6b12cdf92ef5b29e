# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""Which boxes stand for objects of their own: greedy non-maximum suppression by class."""
from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]


def distinct(boxes: Array, scores: Array, classes: Array, overlap: float, most: int) -> Array:
    """
    Return the places of boxes that no surer one of their class overlaps, the surest first.

    :param boxes: two corners (n, 4).
    :param overlap: intersection over union above which they are one object.
    :param most: places at most.
    """
    waiting = np.argsort(-scores, kind='stable')
    if overlap >= 1:
        return waiting[:most]
    sides = boxes[:, 2:] - boxes[:, :2]
    areas = sides.clip(0).prod(1)
    kept: list[int] = []
    while len(waiting) and len(kept) < most:
        first, rest = waiting[0], waiting[1:]
        kept.append(int(first))
        low = np.maximum(boxes[first, :2], boxes[rest, :2])
        high = np.minimum(boxes[first, 2:], boxes[rest, 2:])
        common = (high - low).clip(0).prod(1)
        union = areas[first] + areas[rest] - common
        waiting = rest[(common <= overlap * union) | (classes[rest] != classes[first])]
    return np.array(kept, np.int64)
