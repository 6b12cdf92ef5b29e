# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""Bytes that cross a cut between operators."""
from __future__ import annotations

import numpy as np
import numpy.typing as npt

from intradp_ros.split.local_operator import SplitGraph


def crossing_bytes(split: SplitGraph, outputs: bool = False) -> npt.NDArray[np.int64]:
    """
    Return the bytes that later operators read, after each operator, shape (operators,).

    A value counts from its producer to its last reader; with `outputs`, the
    graph's outputs count on to the end.
    """
    graph = split.graph
    alive = np.zeros(len(graph.operators) + 1, dtype=np.int64)
    for value in graph.values:
        first = graph.producer.get(value.id, 0)
        last = max(graph.consumers[value.id], default=first)
        if outputs and value.id in graph.output_values:
            last = len(graph.operators)
        alive[first] += value.nbytes
        alive[last] -= value.nbytes
    return np.cumsum(alive)[:-1]
