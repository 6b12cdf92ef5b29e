# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""Whether rows of a batch are computed apart from each other, by what operators read."""
from __future__ import annotations

from dataclasses import replace
import math

import numpy as np
import numpy.typing as npt
import torch

from intradp_ros.graph.operator_graph import callee, map_refs, Operator, OperatorGraph, ValueRef
from intradp_ros.graph.rewrite import rebuild
from intradp_ros.split.local_operator import LocalOperator, SplitGraph
from intradp_ros.split.rules.pointwise import is_pointwise
from intradp_ros.split.split_graph import split_graph

#: What moves numbers and computes none: what becomes of rows is seen by moving their names.
_MOVES = frozenset(f'aten.{name}' for name in (
    'reshape.default', 'view.default', 'transpose.int', 'permute.default', 'flatten.using_ints'))
#: Along a dimension of a value, None for all of it: of which rows of the batch each place is.
_Rows = tuple[int | None, npt.NDArray[np.bool_]]


def mixed_rows(graph: OperatorGraph) -> str:
    """
    Say what may mix the rows of a batch, the first dimension of all inputs and outputs.

    It is '' if each row of each output is shown to follow from the same row of the inputs alone,
    whatever the numbers are: by the rows that each operator reads (`RowMap`).
    """
    graph = _reshaped(graph)
    split = split_graph(graph, 0)
    batch = graph.values[graph.inputs[0]].shape[0]
    found: dict[int, _Rows] = {v: (0, np.eye(batch, dtype=bool)) for v in graph.inputs}
    first = ''
    for local in split.operators:
        of = _followed(split, local, found, batch)
        found.update((v, of) for v in local.operator.outputs if v is not None)
        if not first and (of[1].sum(1) > 1).any():
            first = local.operator.target
    for output in graph.outputs:
        if isinstance(output, ValueRef):
            dim, rows = found[output.value]
            if dim != 0 or (rows & ~np.eye(len(rows), batch, dtype=bool)).any():
                return f'rows of a batch may mix (first in {first})'
    return ''


def _reshaped(graph: OperatorGraph) -> OperatorGraph:
    """Make each look-up by constants that only inserts dimensions, as of a mask, a reshape."""
    def plain(operator: Operator) -> Operator:
        if operator.target != 'aten.index.Tensor' or not isinstance(operator.args[0], ValueRef) \
                or len(operator.inputs) > 1 or operator.args[0] in operator.args[1]:
            return operator
        shape = graph.values[operator.args[0].value].shape
        names = torch.arange(math.prod(shape)).view(shape)
        found = names[tuple(slice(None) if ref is None else graph.parameters[ref.name]
                            for ref in operator.args[1])]
        return replace(operator, target='aten.reshape.default',
                       args=(operator.args[0], list(found.shape))) \
            if torch.equal(found.flatten(), names.flatten()) else operator
    return rebuild(graph, operators=[plain(operator) for operator in graph.operators])


def _followed(split: SplitGraph, local: LocalOperator, found: dict[int, _Rows], batch: int,
              ) -> _Rows:
    """Return of which rows of the batch the outputs of an operator are."""
    operator = local.operator
    result = next(v for v in operator.outputs if v is not None)
    given = [found[v] for v in operator.inputs]
    if operator.target in _MOVES and (moved := _moved(split.graph, operator, given[0])):
        return moved
    rank = len(split.graph.values[result].shape)
    places = [None if dim is None else dim + rank - len(split.graph.values[v].shape)
              for v, (dim, _) in zip(operator.inputs, given)]
    if is_pointwise(callee(split.graph, operator)) and None not in places \
            and len({*zip(places, (len(rows) for _, rows in given))}) == 1:
        return places[0], np.logical_or.reduce([rows for _, rows in given])
    every = np.zeros((local.rows, batch), bool)
    for v, needs, (dim, rows) in zip(operator.inputs, local.maps, given):
        if dim != split.dims[v] or len(rows) != split.rows[v]:
            every |= rows.any(0)
            continue
        sums = np.vstack([np.zeros(batch, int), rows.cumsum(0)])
        start = np.minimum(needs.first, len(rows))
        every |= sums[np.maximum(np.minimum(needs.last, len(rows)), start)] > sums[start]
    return split.dims[result], every


def _moved(graph: OperatorGraph, operator: Operator, given: _Rows) -> _Rows | None:
    """Return where rows are after an operator that moves them; None if along no dimension."""
    dim, rows = given
    shape = graph.values[operator.inputs[0]].shape
    if dim is None or len(operator.inputs) != 1 or (rows.sum(1) != 1).any():
        return None
    names = torch.from_numpy(rows.argmax(1).astype(np.int16)).view(
        [-1 if d == dim else 1 for d in range(len(shape))]).expand(shape)
    args, kwargs = map_refs((operator.args, dict(operator.kwargs)), lambda _: names)
    moved = callee(graph, operator)(*args, **kwargs)
    for d in range(moved.dim()):
        along = moved.movedim(d, 0).flatten(1) if moved.dim() > 1 else moved[:, None]
        if (along == along[:, :1]).all():
            return d, np.eye(rows.shape[1], dtype=bool)[along[:, 0].numpy()]
    return None
