# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""Whether rows of a batch are computed apart from each other, by what operators read."""
from __future__ import annotations

import numpy as np
import numpy.typing as npt

from intradp_ros.graph.operator_graph import OperatorGraph, ValueRef
from intradp_ros.split.split_graph import split_graph

Bools = npt.NDArray[np.bool_]


def mixed_rows(graph: OperatorGraph) -> str:
    """
    Say what may mix the rows of a batch, the first dimension of all inputs and outputs.

    It is '' if each row of each output is shown to follow from the same row of the inputs alone,
    whatever the numbers are: by the rows that each operator reads (`RowMap`).
    """
    split = split_graph(graph, 0)
    batch = graph.values[graph.inputs[0]].shape[0]
    apart = np.eye(batch, dtype=bool)
    #: By value: which rows of the batch each of its rows follows from.
    reads: dict[int, Bools] = {
        v: apart if split.dims[v] == 0 and split.rows[v] == batch
        else np.ones((split.rows[v], batch), bool) for v in graph.inputs}
    first = ''
    for local in split.operators:
        found = np.zeros((local.rows, batch), bool)
        for v, needs in zip(local.operator.inputs, local.maps):
            sums = np.vstack([np.zeros(batch, int), reads[v].cumsum(0)])
            start = np.minimum(needs.first, len(reads[v]))
            found |= sums[np.maximum(np.minimum(needs.last, len(reads[v])), start)] > sums[start]
        reads.update((v, found) for v in local.operator.outputs if v is not None)
        if not first and (found.sum(1) > 1).any():
            first = local.operator.target
    for output in graph.outputs:
        v = output.value if isinstance(output, ValueRef) else -1
        if v >= 0 and (split.dims[v] != 0 or len(reads[v]) != batch or (reads[v] & ~apart).any()):
            return f'rows of a batch may mix (first in {first})'
    return ''
