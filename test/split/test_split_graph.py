# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""Choosing and following the split axis through a graph."""
from __future__ import annotations

import pytest
import torch
from torch import nn

from intradp_ros.graph.capture import capture
from intradp_ros.graph.operator_graph import Operator, OperatorGraph, Value, ValueRef
from intradp_ros.split.checks.verify import verify
from intradp_ros.split.local_operator import Kind
from intradp_ros.split.regions.region import Region
from intradp_ros.split.split_graph import split_graph


def graph_of(*shapes: tuple[int, ...], target: str = 'aten.relu.default') -> OperatorGraph:
    """Return a graph with inputs of these shapes, one of which an operator reads."""
    inputs = tuple(Value(k, f'in{k}', shape, torch.float32) for k, shape in enumerate(shapes))
    result = Value(len(shapes), 'out', shapes[0], torch.float32)
    operator = Operator(0, 'op', target, (ValueRef(0),), {}, (len(shapes),))
    return OperatorGraph(
        'net', (*inputs, result), (operator,), tuple(range(len(shapes))),
        (ValueRef(len(shapes)),), '', {})


@pytest.mark.parametrize(('shape', 'axis'), [
    ((1, 3, 224, 224), 2),
    ((1, 3, 192, 256), 3),
    ((1, 3, 256, 192), 2),
    ((1, 512, 16), 1),
    ((1, 1, 8, 16, 16), 3),
    ((480, 640, 3), 1),
    ((1, 640, 480, 4), 1),
    ((1, 2, 9, 3), 2),
    ((64, 10), 0),
    ((9,), 0),
])
def test_longest_spatial_dimension_is_split(shape: tuple[int, ...], axis: int) -> None:
    split = split_graph(graph_of(shape))
    assert (split.axis, split.dims, split.rows) == (axis, (axis, axis), (shape[axis],) * 2)


def test_first_input_of_three_dimensions_leads() -> None:
    split = split_graph(graph_of((4, 5), (1, 3, 8, 9)))
    assert (split.axis, split.dims[:2]) == (3, (None, 3))


def test_inputs_of_the_same_rank_are_split_alike() -> None:
    split = split_graph(graph_of((1, 3, 8, 6), (1, 3, 16, 12), (1, 3, 1, 6), (1, 3)))
    assert split.dims[:4] == (2, 2, None, None)
    assert split.rows[:4] == (8, 16, 1, 1)


def test_axis_may_be_counted_from_the_end() -> None:
    assert split_graph(graph_of((1, 3, 8, 6)), -1).axis == 3


@pytest.mark.parametrize('axis', [4, -5])
def test_axis_out_of_range_is_refused(axis: int) -> None:
    with pytest.raises(ValueError, match=r"not a dimension of input 'in0' .* choose one of 0..3"):
        split_graph(graph_of((1, 3, 8, 6)), axis)


def test_axis_of_one_row_is_refused() -> None:
    with pytest.raises(ValueError, match='one row only'):
        split_graph(graph_of((1, 3, 8, 6)), 0)


def test_axis_without_any_dimension_is_refused() -> None:
    with pytest.raises(ValueError, match='no input with a dimension'):
        split_graph(graph_of(()), 0)


def test_scalars_are_global() -> None:
    split = split_graph(graph_of(()))
    assert (split.dims, split.operators[0].kind) == ((None, None), Kind.GLOBAL)


def test_unknown_operators_are_global() -> None:
    split = split_graph(graph_of((1, 3, 8, 8), target='aten.erfinv.default'))
    assert split.operators[0].kind is Kind.ELEMENT  # known by its tag
    split = split_graph(graph_of((1, 3, 8, 8), target='aten.nonzero.default'))
    assert split.operators[0].kind is Kind.GLOBAL
    assert split.operators[0].maps[0](Region(0, 1)) == Region(0, 8)


class Gate(nn.Module):
    """Squeeze and excite, and then back to the image's size from one row."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 4, 3, 1, 1)
        self.squeeze = nn.Conv2d(4, 4, 1)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        y = self.conv(x)
        pooled = self.squeeze(y.mean((2, 3), keepdim=True))
        wide = nn.functional.interpolate(pooled, size=tuple(y.shape[2:]))
        return torch.cat([y * pooled.sigmoid(), wide], 1), pooled


def test_rows_meet_at_a_global_operator_and_part_again() -> None:
    graph = capture(Gate(), torch.rand(1, 3, 8, 6))
    split = split_graph(graph)
    kinds = {local.operator.target.split('.')[1]: local.kind for local in split.operators}
    assert kinds['partial_reduction'] is Kind.ROW
    assert kinds['total_reduction'] is Kind.GLOBAL
    assert kinds['upsample_nearest2d'] is Kind.GLOBAL  # from one row, and so unsplit
    assert kinds['mul'] is Kind.ELEMENT
    assert kinds['cat'] is Kind.ELEMENT
    cat = next(x for x in split.operators if x.operator.target == 'aten.cat.default')
    assert [row_map(Region(2, 4)) for row_map in cat.maps] == [Region(2, 4), Region(0, 1)]
    assert split.dims[split.graph.output_values[1]] is None
    assert verify(split, [torch.rand(1, 3, 8, 6)]).exact


class Attention(nn.Module):
    """Self-attention over the pixels of an image."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        tokens = x.flatten(2).transpose(1, 2)
        scores = (tokens @ tokens.transpose(1, 2)).softmax(-1)
        return (scores @ tokens).transpose(1, 2).unflatten(2, x.shape[2:])


def test_attention_is_local_in_its_queries() -> None:
    graph = capture(Attention(), torch.rand(1, 4, 6, 5, dtype=torch.float64))
    split = split_graph(graph, 2)
    assert all(local.kind is not Kind.GLOBAL for local in split.operators)
    products = [x for x in split.operators if x.operator.target == 'aten.matmul.default']
    assert [x.maps[0](Region(3, 5)) for x in products] == [Region(3, 5)] * 2
    assert [x.maps[1](Region(3, 5)) for x in products] == [Region(0, 30)] * 2
    assert verify(split, [torch.rand(1, 4, 6, 5, dtype=torch.float64)]).exact


def test_bytes_of_rows() -> None:
    split = split_graph(graph_of((1, 3, 8, 6)))
    assert split.nbytes(0, 2) == 3 * 2 * 6 * 4
    assert split.whole(0) == Region(0, 8)
