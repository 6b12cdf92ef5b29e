# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""Element-wise operators and broadcasting."""
from __future__ import annotations

import pytest
from single_operator import check_global, check_local, Parameter, Single
import torch

from intradp_ros.graph.capture import capture
from intradp_ros.split.checks.verify import verify
from intradp_ros.split.local_operator import Kind
from intradp_ros.split.regions.region import Region
from intradp_ros.split.split_graph import split_graph


def tensor(*shape: int) -> torch.Tensor:
    torch.manual_seed(0)
    return torch.rand(shape, dtype=torch.float64) + 0.1


@pytest.mark.parametrize('axis', [0, 1, 2, 3])
@pytest.mark.parametrize(('name', 'rest'), [
    ('relu.default', ()),
    ('sigmoid.default', ()),
    ('silu.default', ()),
    ('gelu.default', ()),
    ('hardtanh.default', (0.0, 0.5)),
    ('hardswish.default', ()),
    ('leaky_relu.default', (0.1,)),
    ('clamp.default', (0.2, 0.8)),
    ('pow.Tensor_Scalar', (2,)),
    ('add.Scalar', (1,)),
    ('rsub.Scalar', (1,)),
    ('clone.default', ()),
    ('log_sigmoid.default', ()),
    *((f'{name}.Scalar', (0.5,)) for name in (
        'divide', 'greater', 'greater_equal', 'less', 'less_equal', 'multiply', 'not_equal',
        'subtract')),
    *((f'{name}.default', ()) for name in ('absolute', 'fix', 'negative', 'arctan')),
])
def test_operator_of_one_value_is_exact(name: str, rest: tuple[object, ...], axis: int) -> None:
    local = check_local(Single(name, tensor(2, 3, 7, 5), *rest), axis)
    assert local.kind is Kind.ELEMENT


@pytest.mark.parametrize('axis', [0, 1, 2, 3])
@pytest.mark.parametrize('shape', [
    (2, 3, 7, 5), (1, 3, 1, 1), (7, 1), (7, 5), (5,), (1,), (), (2, 3, 7, 1), (1, 1, 1, 5)])
@pytest.mark.parametrize('constant', [False, True])
def test_broadcast_operand_is_exact(
        shape: tuple[int, ...], constant: bool, axis: int) -> None:
    operand = Parameter(tensor(*shape)) if constant else tensor(*shape)
    check_local(Single('mul.Tensor', tensor(2, 3, 7, 5), operand), axis)
    if constant:  # as a value it would lead, and have the split axis
        check_local(Single('sub.Tensor', operand, tensor(2, 3, 7, 5)), axis)


def test_operand_of_higher_rank_moves_the_split_dimension() -> None:
    single = Single('mul.Tensor', tensor(3, 7, 5), Parameter(tensor(2, 1, 1, 5)))
    split = single.split(1)
    check_local(single, 1)
    assert split.dims[1] == 2


def test_only_the_rows_of_split_operands_are_needed() -> None:
    local = check_local(Single('add.Tensor', tensor(1, 3, 7, 5), tensor(1, 3, 7, 5)), 2)
    assert [row_map(Region(2, 4)) for row_map in local.maps] == [Region(2, 4)] * 2


def test_value_read_twice_is_exact() -> None:
    x = tensor(1, 2, 6, 4)
    single = Single('where.self', x > 0.5, x, Parameter(x * 2))
    check_local(single, 2)


def test_conditions_and_masks_are_exact() -> None:
    x, mask = tensor(1, 2, 6, 4), tensor(6, 4) > 0.5
    check_local(Single('where.self', Parameter(mask), x, x + 1), 2)
    check_local(Single('masked_fill.Scalar', x, Parameter(mask), 3.0), 2)


@pytest.mark.parametrize('name', ['prelu', '_prelu_kernel'])
def test_slopes_of_channels_are_exact(name: str) -> None:
    slopes = Parameter(tensor(3) if name == 'prelu' else tensor(3, 1, 1))
    single = Single(f'{name}.default', tensor(2, 3, 7, 5) - 0.5, slopes)
    check_local(single, 2)
    check_local(single, 0)
    check_global(single, 1)


def test_batch_norm_by_running_statistics_is_exact() -> None:
    statistics = [Parameter(tensor(3)) for _ in range(4)]
    single = Single(
        '_native_batch_norm_legit_no_training.default', tensor(2, 3, 7, 5), *statistics, 0.1, 1e-5)
    check_local(single, 2)
    check_local(single, 0)
    check_global(single, 1)


def test_batch_norm_by_its_own_statistics_is_global() -> None:
    single = Single(
        'batch_norm.default', tensor(2, 3, 7, 5), None, None, None, None, True, 0.1, 1e-5, False)
    check_global(single, 2)


def test_random_numbers_are_global() -> None:
    local = Single('rand_like.default', tensor(1, 2, 6, 4)).split(2).operators[0]
    assert local.kind is Kind.GLOBAL


def test_largest_operand_leads_where_operands_are_split_along_several_dimensions() -> None:
    class Crossed(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x[..., :1].transpose(1, 2) * x

    x = tensor(1, 6, 6)
    split = split_graph(capture(Crossed(), x), 1)
    assert split.dims[split.graph.output_values[0]] == 1
    assert verify(split, [x]).exact
