# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""Pooling: maximum, average, adaptive."""
from __future__ import annotations

from typing import Any

from hypothesis import assume, given, settings
from hypothesis import strategies as st
import pytest
from single_operator import check_folded, check_global, check_local, rows_that_count, Single
import torch

from intradp_ros.split.regions.region import Region

SEEDS = st.integers(0, 10**6)


@st.composite
def pools(draw: Any, kind: str, indices: bool = False) -> tuple[Single, int]:
    """Return a pooling operator with any settings, and the axis to split it along."""
    spatial = draw(st.integers(1, 3))

    def each(low: int, high: int) -> list[int]:
        return [draw(st.integers(low, high)) for _ in range(spatial)]

    torch.manual_seed(draw(SEEDS))
    x = torch.randn(1, 2, *each(3, 12), dtype=torch.float64)
    kernel = each(1, 4)
    padding = [draw(st.integers(0, k // 2)) for k in kernel]
    ceil = draw(st.booleans())
    rest: list[Any] = [each(1, 4), padding]
    if kind == 'max':
        rest += [each(1, 2), ceil]
    else:
        rest += [ceil, draw(st.booleans())]
        if spatial > 1:
            rest.append(draw(st.sampled_from([None, 3])))
    axis = draw(st.integers(2, 1 + spatial))
    name, read = f'{kind}_pool{spatial}d', (0,)
    if indices and spatial > 1:
        name, read = f'{name}_with_indices', (0, 1)
    try:
        return Single(f'{name}.default', x, kernel, *rest, read=read), axis
    except RuntimeError:  # an output without rows, say
        assume(False)
        raise


@settings(max_examples=150)
@given(pools('max'), SEEDS)
def test_max_pool_is_exact(case: tuple[Single, int], seed: int) -> None:
    single, axis = case
    assume(single.values[-1].shape[axis] > 1)
    check_local(single, axis, seed)


@settings(max_examples=150)
@given(pools('avg'), SEEDS)
def test_average_pool_is_exact(case: tuple[Single, int], seed: int) -> None:
    single, axis = case
    assume(single.values[-1].shape[axis] > 1)
    check_local(single, axis, seed)


@settings(max_examples=60)
@given(pools('avg'), st.data())
def test_asks_for_no_row_that_does_not_count(case: tuple[Single, int], data: Any) -> None:
    single, axis = case
    split = single.split(axis)
    local = split.operators[0]
    assume(single.values[-1].shape[axis] > 1)
    start = data.draw(st.integers(0, local.rows - 1))
    region = Region(start, data.draw(st.integers(start + 1, local.rows)))
    assert local.maps[0](region) == rows_that_count(single, region, axis)


@settings(max_examples=80)
@given(
    st.sampled_from(['adaptive_avg_pool', 'adaptive_max_pool']), st.integers(1, 3),
    st.integers(2, 13), st.integers(2, 13), SEEDS)
def test_adaptive_pool_is_exact(
        name: str, spatial: int, rows: int, output_rows: int, seed: int) -> None:
    torch.manual_seed(seed)
    x = torch.randn(1, 2, *[5] * (spatial - 1), rows, dtype=torch.float64)
    size = [3] * (spatial - 1) + [output_rows]
    check_local(Single(f'{name}{spatial}d.default', x, size), 1 + spatial, seed)


@pytest.mark.parametrize('name', ['adaptive_avg_pool2d', 'adaptive_max_pool2d'])
def test_pooling_to_one_row_gathers_records(name: str) -> None:
    x = torch.randn(1, 2, 6, 5, dtype=torch.float64)
    check_folded(Single(f'{name}.default', x, [1, 3]), 2)
    check_local(Single(f'{name}.default', x, [1, 3]), 3)


def test_read_indices_make_adaptive_pooling_global() -> None:
    x = torch.randn(1, 2, 6, 6, dtype=torch.float64)
    check_global(Single('adaptive_max_pool2d.default', x, [2, 2], read=(0, 1)), 2)
    check_local(Single('adaptive_max_pool2d.default', x, [2, 2]), 2)


@settings(max_examples=50)
@given(pools('max', indices=True), SEEDS)
def test_indices_of_max_pool_count_in_the_whole_input(
        case: tuple[Single, int], seed: int) -> None:
    single, axis = case
    assume(single.values[-1].shape[axis] > 1)
    check_local(single, axis, seed)


def test_max_pool_of_integers_is_exact() -> None:
    x = torch.randint(-100, 100, (1, 2, 9, 9))
    check_local(Single('max_pool2d.default', x, [3, 3], [2, 2], [1, 1]), 2, tolerance=0)


@pytest.mark.parametrize('axis', [0, 1])
def test_batch_and_channels_are_local(axis: int) -> None:
    x = torch.randn(2, 3, 6, 6, dtype=torch.float64)
    check_local(Single('max_pool2d.default', x, [2, 2]), axis)
    check_local(Single('avg_pool2d.default', x, [2, 2]), axis)
    check_local(Single('adaptive_avg_pool2d.default', x, [1, 1]), axis)
