# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""Convolutions, transposed ones included, along any spatial dimension."""
from __future__ import annotations

from typing import Any

from hypothesis import assume, given, settings
from hypothesis import strategies as st
import pytest
from single_operator import check_global, check_local, Parameter, rows_that_count, Single
import torch

from intradp_ros.split.local_operator import Kind
from intradp_ros.split.regions.region import Region

SEEDS = st.integers(0, 10**6)


@st.composite
def convolutions(draw: Any, transposed: bool = False) -> tuple[Single, int]:
    """Return a convolution with any settings, and the axis to split it along."""
    spatial = draw(st.integers(1, 3))

    def each(low: int, high: int) -> list[int]:
        return [draw(st.integers(low, high)) for _ in range(spatial)]

    torch.manual_seed(draw(SEEDS))
    sizes, kernel, stride, dilation = each(3, 11), each(1, 4), each(1, 3), each(1, 3)
    padding = each(0, 3)
    groups = draw(st.sampled_from([1, 2]))
    x = torch.randn(draw(st.integers(1, 2)), 4, *sizes, dtype=torch.float64)
    weight = torch.randn(4, 2 if transposed else 4 // groups, *kernel, dtype=torch.float64)
    channels = 2 * groups if transposed else 4
    bias = Parameter(torch.randn(channels, dtype=torch.float64)) if draw(st.booleans()) else None
    axis = draw(st.integers(2, 1 + spatial))
    if not transposed:
        name, rest = f'conv{spatial}d.default', (stride, padding, dilation, groups)
    else:
        extra = [draw(st.integers(0, max(s, d) - 1)) for s, d in zip(stride, dilation)]
        overload = 'default' if spatial == 1 else 'input'
        name = f'conv_transpose{spatial}d.{overload}'
        rest = (stride, padding, extra, groups, dilation)
    try:
        return Single(name, x, Parameter(weight), bias, *rest), axis
    except RuntimeError:  # an output without rows, say
        assume(False)
        raise


@settings(max_examples=150)
@given(convolutions(), SEEDS)
def test_convolution_is_exact(case: tuple[Single, int], seed: int) -> None:
    single, axis = case
    assume(single.values[-1].shape[axis] > 1)
    assert check_local(single, axis, seed).kind is Kind.BLOCK


@settings(max_examples=150)
@given(convolutions(transposed=True), SEEDS)
def test_transposed_convolution_is_exact(case: tuple[Single, int], seed: int) -> None:
    single, axis = case
    assume(single.values[-1].shape[axis] > 1)
    assert check_local(single, axis, seed).kind is Kind.BLOCK


@settings(max_examples=60)
@given(st.booleans(), st.data())
def test_asks_for_no_row_that_does_not_count(transposed: bool, data: Any) -> None:
    single, axis = data.draw(convolutions(transposed))
    split = single.split(axis)
    local = split.operators[0]
    assume(local.rows > 1)
    dilation = single.graph.operators[0].args[7 if transposed else 5][axis - 2]
    start = data.draw(st.integers(0, local.rows - 1))
    region = Region(start, data.draw(st.integers(start + 1, local.rows)))
    need, counted = local.maps[0](region), rows_that_count(single, region, axis)
    assert need.covers(counted)
    if dilation == 1:  # otherwise which rows count need not grow with the region
        assert need.rows == counted.rows


@pytest.mark.parametrize('padding', ['same', 'valid'])
@pytest.mark.parametrize('size', [2, 3, 4])
@pytest.mark.parametrize('spatial', [1, 2, 3])
def test_padding_by_name_is_exact(padding: str, size: int, spatial: int) -> None:
    torch.manual_seed(size)
    x = torch.randn(1, 2, *[9] * spatial, dtype=torch.float64)
    weight = Parameter(torch.randn(3, 2, *[size] * spatial, dtype=torch.float64))
    single = Single(
        f'conv{spatial}d.padding', x, weight, None, [1] * spatial, padding, [2] * spatial)
    for axis in range(2, 2 + spatial):
        check_local(single, axis)


@pytest.mark.parametrize('transposed', [False, True])
def test_general_convolution_is_exact(transposed: bool) -> None:
    torch.manual_seed(1)
    x, weight = torch.randn(2, 1, 4, 9, 8, dtype=torch.float64), torch.randn(
        4, 4, 3, 3, dtype=torch.float64)
    single = Single(
        'convolution.default', x[0], Parameter(weight), None, [2, 1], [1, 1], [1, 1],
        transposed, [1 if transposed else 0, 0], 1)
    check_local(single, 2)
    check_local(single, 3)


def test_batch_is_local_and_channels_are_not() -> None:
    x = torch.randn(3, 4, 6, 6, dtype=torch.float64)
    single = Single('conv2d.default', x, Parameter(torch.randn(5, 4, 3, 3, dtype=torch.float64)))
    check_local(single, 0)
    check_global(single, 1)


def test_image_without_batch_is_exact() -> None:
    x = torch.randn(4, 7, 6, dtype=torch.float64)
    weight = Parameter(torch.randn(5, 4, 3, 3, dtype=torch.float64))
    single = Single('conv2d.default', x, weight, None, [1, 1], [1, 1])
    check_local(single, 1)
    check_local(single, 2)
    check_global(single, 0)


def test_single_output_row_is_global() -> None:
    x = torch.randn(1, 2, 5, 5, dtype=torch.float64)
    single = Single('conv2d.default', x, Parameter(torch.randn(3, 2, 5, 5, dtype=torch.float64)))
    check_global(single, 2)


def test_widely_dilated_window_needs_only_its_real_rows() -> None:
    x = torch.randn(1, 1, 10, 4, dtype=torch.float64)
    single = Single(
        'conv2d.default', x, Parameter(torch.randn(1, 1, 3, 3, dtype=torch.float64)), None,
        [1, 1], [12, 1], [12, 1])
    local = check_local(single, 2)
    assert local.maps[0](Region(4, 6)) == Region(4, 6)


def test_rows_between_input_rows_of_a_transposed_convolution_need_nothing() -> None:
    x = torch.randn(1, 1, 4, 4, dtype=torch.float64)
    single = Single(
        'conv_transpose2d.input', x, Parameter(torch.randn(1, 1, 1, 1, dtype=torch.float64)),
        Parameter(torch.randn(1, dtype=torch.float64)), [3, 3])
    local = check_local(single, 2)
    assert local.rows == 10
    assert not local.maps[0](Region(1, 3))
