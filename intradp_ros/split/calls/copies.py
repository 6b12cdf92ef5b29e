# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""Operators whose output rows are copies of input rows."""
from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise

import numpy as np
import torch

from intradp_ros.graph.operator_graph import ParameterRef
from intradp_ros.split.calls.call import Call
from intradp_ros.split.calls.site import Site, Split
from intradp_ros.split.local_operator import Kernel, Kind, Parameters
from intradp_ros.split.regions.region import Ints, Region, RowMap

Take = Callable[[torch.Tensor], torch.Tensor]
_MOST_RUNS = 4


def copied_rows(site: Site, dim: int, source: Ints, others: Call | None = None) -> Split | None:
    """
    Split an operator whose output row `a` along `dim` is row ``source[a]`` of its first argument.

    `others` is the call that does what is left to do along other dimensions
    (None: nothing), with the rows already in their places.  A single output
    row that keeps its dimension counts as unsplit, but needs its one row only.
    """
    lead = site.lead()
    if lead is None:
        return None
    input_dim, input_rows, rows = lead[1], site.shape(lead[0])[lead[1]], len(source)
    row_map = RowMap.copies(source, input_rows)

    def bind(region: Region, parameters: Parameters) -> Kernel:
        handed = row_map(region)
        if region.rows == rows and handed.rows == input_rows:
            return site.call.compile(parameters)
        take = taking(input_dim, source[slice(*region)] - handed.start, handed.rows)
        if others is None:
            return lambda x: take(x[0])
        kernel = others.compile(parameters)
        return lambda x: kernel((take(x[0]), *x[1:]))

    return Split(
        Kind.ELEMENT, dim if rows > 1 else None, rows, site.maps(row_map, rows), bind)


def chosen_rows(site: Site, index: ParameterRef) -> Split | None:
    """
    Split an operator whose output rows are those that a constant, 1-dimensional index names.

    A plan is made without parameters, so that it cannot know which rows these
    are: any output row may need any input row.
    """
    lead = site.lead()
    if lead is None:
        return None
    dim, input_rows = lead[1], site.shape(lead[0])[lead[1]]
    rows = site.output_shape[dim]

    def bind(region: Region, parameters: Parameters) -> Kernel:
        chosen = parameters[index.name][slice(*region)].long() % input_rows
        return lambda x: x[0].index_select(dim, chosen)

    maps = site.maps(RowMap.whole(rows, input_rows), rows)
    return Split(Kind.ROW, dim if rows > 1 else None, rows, maps, bind)


def taking(dim: int, rows: Ints, available: int) -> Take:
    """
    Return a function that takes `rows`, of the `available` ones, along `dim`.

    Rows in even steps are a view, a few runs of rows are joined, and others are gathered.
    """
    runs = _runs(rows)
    if len(runs) == 1:
        if len(rows) == available:
            return lambda x: x
        every = (slice(None),) * dim + (runs[0],)
        return lambda x: x[every]
    if len(runs) <= _MOST_RUNS:
        each = [(slice(None),) * dim + (run,) for run in runs]
        return lambda x: torch.cat([x[run] for run in each], dim)
    index = torch.tensor(rows)
    return lambda x: x.index_select(dim, index)


def _runs(rows: Ints) -> Sequence[slice]:
    """Return the rows as slices: one if they ascend in even steps, else one for each run."""
    steps = np.diff(rows)
    if len(steps) and steps[0] > 0 and (steps == steps[0]).all():
        return [slice(int(rows[0]), int(rows[-1]) + 1, int(steps[0]))]
    ends = [0, *(np.flatnonzero(steps != 1) + 1).tolist(), len(rows)]
    return [slice(int(rows[a]), int(rows[b - 1]) + 1) for a, b in pairwise(ends)]
