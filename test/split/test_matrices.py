# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""Matrix products and linear layers."""
from __future__ import annotations

import pytest
from single_operator import (
    check_folded,
    check_global,
    check_local,
    check_yields_rows,
    Parameter,
    Single,
)
import torch

from intradp_ros.graph.capture import capture
from intradp_ros.split.checks.verify import verify
from intradp_ros.split.local_operator import Kind
from intradp_ros.split.regions.region import Region
from intradp_ros.split.split_graph import split_graph


def tensor(*shape: int) -> torch.Tensor:
    return torch.randn(
        *shape, dtype=torch.float64, generator=torch.Generator().manual_seed(sum(shape)))


@pytest.mark.parametrize('axis', [0, 1, 2])
def test_linear_layer_is_local_but_along_its_features(axis: int) -> None:
    weight, bias = Parameter(tensor(5, 4)), Parameter(tensor(5))
    single = Single('linear.default', tensor(3, 7, 4), weight, bias)
    if axis == 2:
        assert check_yields_rows(single, axis).rows == 5
    else:
        assert check_local(single, axis).kind is Kind.ROW


def test_linear_layer_by_a_computed_weight_is_local_along_its_outputs() -> None:
    single = Single('linear.default', Parameter(tensor(7, 4)), tensor(5, 4), tensor(5))
    assert check_local(single, 0).maps[0](Region(1, 3)) == Region(1, 3)


@pytest.mark.parametrize(('name', 'batch'), [('matmul', ()), ('mm', ()), ('bmm', (3,))])
def test_product_is_local_along_rows_of_the_left_factor(name: str, batch: tuple[int, ...]) -> None:
    left, right = tensor(*batch, 7, 4), tensor(*batch, 4, 6)
    check_local(Single(f'{name}.default', left, Parameter(right)), len(batch))
    local = check_local(Single(f'{name}.default', left, right), len(batch))
    assert local.maps[0](Region(2, 3)) == Region(2, 3)
    assert local.maps[1](Region(2, 3)) == Region(0, 4)  # contracted: all of it is needed


@pytest.mark.parametrize('rank', [2, 3, 4])
def test_product_is_local_along_columns_of_the_right_factor(rank: int) -> None:
    right = tensor(*[3, 2][:rank - 2], 4, 6)
    single = Single('matmul.default', Parameter(tensor(7, 4)), right)
    local = check_local(single, rank - 1)
    assert local.maps[0](Region(2, 4)) == Region(2, 4)
    check_global(single, rank - 2)  # a product larger than what it contracts


def test_product_of_batches_is_local_along_the_batch() -> None:
    local = check_local(Single('bmm.default', tensor(5, 3, 4), tensor(5, 4, 2)), 0)
    assert [row_map(Region(1, 3)) for row_map in local.maps] == [Region(1, 3)] * 2
    check_local(Single('matmul.default', tensor(5, 3, 4), Parameter(tensor(5, 4, 2))), 0)
    check_local(Single('matmul.default', tensor(2, 5, 3, 4), tensor(5, 4, 2)), 1)


def test_contraction_over_the_rows_adds_partial_products() -> None:
    check_global(Single('bmm.default', tensor(1, 3, 4), Parameter(tensor(1, 4, 2))), 2)
    check_folded(Single('bmm.default', tensor(1, 3, 9), Parameter(tensor(1, 9, 2))), 2)
    check_folded(Single('matmul.default', tensor(1, 3, 4), Parameter(tensor(4))), 2)


@pytest.mark.parametrize('shape', [(7, 5), (5,), (7, 1), (1,)])
def test_added_product_is_local(shape: tuple[int, ...]) -> None:
    left, right = tensor(7, 4), Parameter(tensor(4, 5))
    check_local(Single('addmm.default', Parameter(tensor(*shape)), left, right), 0)
    batches = tensor(2, 7, 4), Parameter(tensor(2, 4, 5))
    added = Single('baddbmm.default', tensor(2, 7, 5), *batches)
    check_local(added, 0)
    check_local(added, 1)


def test_square_of_a_matrix_is_local_along_the_rows_of_its_left_factor() -> None:
    x = tensor(6, 6)
    local = check_local(Single('mm.default', x, x), 0)
    assert [row_map(Region(2, 3)) for row_map in local.maps] == [Region(2, 3), Region(0, 6)]


def test_square_of_a_parameter_beside_the_rows_is_global() -> None:
    weight = Parameter(tensor(6, 6))
    single = Single('addmm.default', tensor(6, 6), weight, weight)
    check_local(single, 0)


def test_products_with_vectors_are_local() -> None:
    check_local(Single('mv.default', tensor(7, 4), Parameter(tensor(4))), 0)
    check_local(Single('addmv.default', tensor(7), Parameter(tensor(7, 4)), tensor(4)), 0)
    check_local(Single('matmul.default', tensor(2, 7, 4), Parameter(tensor(4))), 1)
    check_local(Single('outer.default', tensor(7), tensor(5)), 0)
    check_local(Single('outer.default', Parameter(tensor(7)), tensor(5)), 0)


@pytest.mark.parametrize('dim', [2, 3])
def test_attention_written_out_keeps_the_rows_that_its_softmax_leaves(dim: int) -> None:
    class Attention(torch.nn.Module):
        """Every second row asks all rows; the softmax runs along `dim`."""

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            queries = x[:, :, ::2]
            scores = torch.matmul(queries, x.transpose(2, 3)) * 0.5 + 1
            return torch.matmul(scores.softmax(dim), x)

    x = tensor(1, 2, 16, 4)
    split = split_graph(capture(Attention(), (x,)), 2)
    (softmax,) = (op for op in split.operators if op.operator.target == 'aten.softmax.int')
    assert softmax.rows == {3: 8, 2: 16}[dim]
    report = verify(split, [x], 3)
    assert report.exact, report.worst
