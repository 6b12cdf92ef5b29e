# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""
Random split graphs in integer arithmetic, where any wrong or missing row changes the result.

Each row of a value is one number; an operator's output row is a weighted sum
of the input rows its row map names, modulo a prime.  Equality is exact.  A
folded value is such a sum over the rows of a piece.
"""
from __future__ import annotations

from collections.abc import Sequence
import random

import numpy as np
import torch

from intradp_ros.graph.operator_graph import Operator, OperatorGraph, Value, ValueRef
from intradp_ros.schedule.cost import CostModel
from intradp_ros.schedule.schedule import ROBOT, SERVER
from intradp_ros.split.local_operator import Kernel, Kind, LocalOperator, SplitGraph
from intradp_ros.split.regions.region import Region, RowMap

PRIME = 1_000_003


def flat_cost(split: SplitGraph, robot: float = 4e-3, server: float = 1e-3) -> CostModel:
    """Each operator costs a fixed part and a part by rows."""
    return CostModel(split, {side: tuple(
        np.where(np.arange(op.rows + 1) > 0, seconds * (0.1 + np.arange(op.rows + 1) / op.rows), 0)
        for op in split.operators) for side, seconds in ((ROBOT, robot), (SERVER, server))})


def random_split_graph(seed: int, operators: int = 8, rows: int = 24,
                       folds: float = 0.0) -> SplitGraph:
    """
    Return a random DAG of block-wise, element-wise, resampling and global operators.

    An operator is one that adds up rows, of which the next one makes the
    total, at odds of `folds`.
    """
    rng = random.Random(seed)
    values = [Value(0, 'input', (rows, 1), torch.int64)]
    heights = [rows]
    locals_: list[LocalOperator] = []
    folded: set[int] = set()
    while len(locals_) < operators:
        index = len(locals_)
        plain = [v for v in range(len(values)) if v not in folded]
        reads = [plain[rng.randrange(max(0, len(plain) - 4), len(plain))]]
        if folds and rng.random() < folds and heights[reads[0]] > 1 and index + 1 < operators:
            folded.add(len(values))
            locals_ += _fold(index, reads[0], heights[reads[0]], values)
            heights += [heights[reads[0]], 1]
            continue
        if rng.random() < 0.4:
            reads.append(plain[rng.randrange(len(plain))])
        height = _height(rng, heights[reads[0]])
        maps = tuple(_rowmap(rng, height, heights[v]) for v in reads)
        out = len(values)
        values.append(Value(out, f'value{out}', (height, 1), torch.int64))
        heights.append(height)
        op = Operator(index, f'op{index}', 'test.sum', tuple(ValueRef(v) for v in reads), {},
                      (out,))
        locals_.append(LocalOperator(op, Kind.GLOBAL if height == 1 else Kind.BLOCK, height, maps,
                                     _bind(maps, index)))
    outputs = {len(values) - 1} | {v for v in range(1, len(values)) if rng.random() < 0.1}
    outputs -= folded
    graph = OperatorGraph('synthetic', tuple(values), tuple(o.operator for o in locals_), (0,),
                          tuple(ValueRef(v) for v in sorted(outputs)), '', {})
    dims = tuple(0 if h > 1 else None for h in heights)
    return SplitGraph(graph, 0, dims, tuple(heights), tuple(locals_), frozenset(folded))


def _fold(index: int, source: int, rows: int, values: list[Value]) -> list[LocalOperator]:
    """Return the operators that add up rows of `source`, and that add up these sums."""
    record, total = len(values), len(values) + 1
    for value in (record, total):
        values.append(Value(value, f'value{value}', (1, 1), torch.int64))
    adding = Operator(index, f'op{index}', 'test.add', (ValueRef(source),), {}, (record,))
    closing = Operator(
        index + 1, f'op{index + 1}', 'test.total', (ValueRef(record),), {}, (total,))

    def bind_adding(region: Region, parameters: object) -> Kernel:
        weights = torch.arange(*region)[:, None] * 3 + index + 1
        return lambda tensors: (tensors[0] * weights + 1).sum(0, keepdim=True) % PRIME

    def bind_closing(region: Region, parameters: object) -> Kernel:
        return lambda tensors: tensors[0].sum(0, keepdim=True) % PRIME

    return [
        LocalOperator(adding, Kind.ROW, rows, (RowMap.identity(rows),), bind_adding),
        LocalOperator(closing, Kind.GLOBAL, 1, (RowMap.whole(1, rows),), bind_closing)]


def _height(rng: random.Random, height: int) -> int:
    kind = rng.random()
    if kind < 0.1:
        return 1
    if kind < 0.3 and height >= 4:
        return height // 2
    return min(48, height * 2) if kind > 0.9 else height


def _rowmap(rng: random.Random, rows: int, input_rows: int) -> RowMap:
    if rows == 1 or input_rows == 1:
        return RowMap.whole(rows, input_rows)
    halo, scale = rng.randrange(3), input_rows / rows
    first = [min(input_rows - 1, max(0, int(a * scale) - halo)) for a in range(rows)]
    last = [min(input_rows, max(f + 1, int((a + 1) * scale) + halo))
            for a, f in enumerate(first)]
    return RowMap(first, last)


def _bind(maps: Sequence[RowMap], salt: int):
    def bind(region: Region, parameters: object) -> Kernel:
        def kernel(tensors: Sequence[torch.Tensor]) -> torch.Tensor:
            out = [_row(maps, a, region, tensors, salt) for a in range(*region)]
            return torch.tensor(out, dtype=torch.int64)[:, None]
        return kernel
    return bind


def _row(maps: Sequence[RowMap], a: int, region: Region, tensors: Sequence[torch.Tensor],
         salt: int) -> int:
    total = salt + 1
    for k, (rowmap, tensor) in enumerate(zip(maps, tensors)):
        base = rowmap(region)
        assert tensor.shape[0] == base.rows, 'a kernel gets exactly the rows of its map'
        need = rowmap(Region(a, a + 1))
        for i, row in enumerate(range(*need)):
            total += int(tensor[row - base.start, 0]) * (3 * i + 5 * k + salt + 1)
    return total % PRIME


def reference(split: SplitGraph, source: torch.Tensor) -> dict[int, torch.Tensor]:
    """Return all values computed whole."""
    values = {0: source}
    for op in split.operators:
        kernel = op.bind(Region(0, op.rows), {})
        values[op.operator.outputs[0]] = kernel([values[v] for v in op.operator.inputs])
    return values
