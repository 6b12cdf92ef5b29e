# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""An operator seen along the split axis: what it needs for a region, and how to run the region."""
from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

import torch

from intradp_ros.graph.operator_graph import Operator, OperatorGraph
from intradp_ros.split.kernel_device import HOST, KernelDevice
from intradp_ros.split.regions.region import Region, RowMap

Parameters = Mapping[str, torch.Tensor]
Kernel = Callable[[Sequence[torch.Tensor]], Any]


class Kind(str, Enum):
    """The classes of the paper (section 4.1), and what is not local."""

    ELEMENT = 'element-wise'
    BLOCK = 'block-wise'
    ROW = 'row-wise'
    GLOBAL = 'global'


@dataclass(frozen=True)
class LocalOperator:
    """
    One operator with its row arithmetic.

    `rows` counts the output's rows along the split axis (1 where the output
    is not split: the operator then runs as a whole or not at all).  A global
    operator needs its whole input, but may still yield any rows.  `maps`
    has one entry for each entry of ``operator.inputs``.  ``bind(region,
    parameters)`` prepares a kernel for one region; the kernel takes one
    tensor for each input, holding exactly the rows ``maps[k](region)``, and
    returns what the operator returns, cut to `region`.  An input of which no
    row is needed is not read; whatever stands in its place will do.
    """

    operator: Operator
    kind: Kind
    rows: int
    maps: tuple[RowMap, ...]
    bind: Callable[[Region, Parameters], Kernel]


@dataclass(frozen=True, eq=False)
class SplitGraph:
    """
    An operator graph with a split axis.

    `axis` is the dimension of the first input that is cut; `dims` gives the
    split dimension of every value (None where the value is not split) and
    `rows` its length (1 where the value is not split).

    A value in `folded` keeps one record for all rows of a piece (a partial
    sum, say).  It counts as many rows as what it was folded from, but a
    piece computed for some rows has length 1 along its dimension, and can be
    used for exactly these rows only: pieces are joined, never narrowed.  Its
    shape in the graph is that of one record.

    `graph` is the graph that runs, its operators in the order in which they
    do.  Where reductions were taken apart, they are others than those of the
    user's model, which is `captured` and the one that digests, archives and
    comparisons are about; values of both have the same ids.

    Where `channels_last` is true, kernels return images in that layout, and
    run fastest on rows that have it.  `device` is what kernels run on.
    """

    graph: OperatorGraph
    axis: int
    dims: tuple[int | None, ...]
    rows: tuple[int, ...]
    operators: tuple[LocalOperator, ...]
    folded: frozenset[int] = frozenset()
    channels_last: bool = False
    source: OperatorGraph | None = field(default=None, repr=False, compare=False)
    device: KernelDevice = field(default=HOST, repr=False, compare=False)

    @property
    def captured(self) -> OperatorGraph:
        """The graph that was split."""
        return self.source or self.graph

    def whole(self, value: int) -> Region:
        """Return the region of all rows of a value."""
        return Region(0, self.rows[value])

    def nbytes(self, value: int, rows: int) -> int:
        """Bytes of that many rows of a value; of one record if it is folded."""
        if value in self.folded:
            return self.graph.values[value].nbytes if rows > 0 else 0
        return self.graph.values[value].nbytes // self.rows[value] * rows

    def shape(self, value: int, rows: int) -> tuple[int, ...]:
        """Shape of a piece of that many rows of a value."""
        shape, dim = self.graph.values[value].shape, self.dims[value]
        if dim is None or value in self.folded:
            return shape
        return (*shape[:dim], rows, *shape[dim + 1:])

    def cut(self, value: int, whole: torch.Tensor, need: Region) -> torch.Tensor:
        """Return rows of a whole value as a view; all records of a folded one."""
        dim = self.dims[value]
        if dim is None or value in self.folded:
            return whole
        return whole.narrow(dim, need.start, need.rows)
