# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""Blocks under sliding windows, as columns and back."""
from __future__ import annotations

from hypothesis import assume, given, settings
from hypothesis import strategies as st
import pytest
from single_operator import check_global, check_local, rows_that_count, Single
import torch

from intradp_ros.split.regions.region import Region

SEEDS = st.integers(0, 10**6)
PAIRS = st.tuples(st.integers(1, 3), st.integers(1, 3))


def image(*shape: int) -> torch.Tensor:
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(3))


@settings(max_examples=20)
@given(st.integers(1, 4), st.integers(1, 4), SEEDS)
def test_unfolded_dimension_is_exact(size: int, step: int, seed: int) -> None:
    single = Single('unfold.default', image(2, 3, 10, 6), 2, size, step)
    local = check_local(single, 2, seed)
    region = Region(1, local.rows)
    assert local.maps[0](region) == rows_that_count(single, region, 2)
    check_local(single, 3, seed)


@pytest.mark.parametrize('n', [1, 3])
def test_differences_of_rows_are_exact(n: int) -> None:
    local = check_local(Single('diff.default', image(1, 3, 9, 6), n, 2), 2)
    assert local.maps[0](Region(2, 4)) == Region(2, 4 + n)
    check_local(Single('diff.default', image(1, 3, 9, 6), n, -1), 2)
    check_global(Single('diff.default', image(1, 3, 9, 6), n, 2, image(1, 3, 1, 6)), 2)


@settings(max_examples=30)
@given(PAIRS, PAIRS, st.tuples(st.integers(0, 2), st.integers(0, 2)), PAIRS, SEEDS)
def test_columns_and_back_are_exact(
        kernel: tuple[int, int], dilation: tuple[int, int], padding: tuple[int, int],
        stride: tuple[int, int], seed: int) -> None:
    x = image(1, 2, 9, 7)
    settings_ = [list(kernel), list(dilation), list(padding), list(stride)]
    single = Single('im2col.default', x, *settings_)
    assume(single.split(2).graph.values[1].shape[2] > 1)
    check_local(single, 2, seed)
    columns = torch.ops.aten.im2col(x, *settings_)
    back = Single('col2im.default', columns, [9, 7], *settings_)
    assert check_local(back, 2, seed).rows == 9


@pytest.mark.parametrize('axis', [1, 3])
def test_columns_of_other_dimensions_are_global(axis: int) -> None:
    settings_ = [2, 2], [1, 1], [0, 0], [2, 2]
    check_global(Single('im2col.default', image(2, 3, 8, 6), *settings_), axis)
    check_local(Single('im2col.default', image(2, 3, 8, 6), *settings_), 0)
    check_local(Single('col2im.default', image(2, 12, 12), [8, 6], *settings_), 0)
    check_global(Single('col2im.default', image(2, 12, 12), [8, 6], *settings_), 1)


def test_columns_need_the_rows_under_their_blocks() -> None:
    single = Single('im2col.default', image(1, 2, 9, 7), [3, 2], [1, 1], [1, 0], [2, 1])
    local = check_local(single, 2)
    for region in (Region(0, 1), Region(5, 8), Region(12, 13), Region(24, 30)):
        assert local.maps[0](region) == rows_that_count(single, region, 2)


def test_image_row_under_no_window_is_zero() -> None:
    columns = Single('col2im.default', image(1, 4, 4), [8, 8], [2, 2], [1, 1], [0, 0], [4, 4])
    local = check_local(columns, 2)
    assert not local.maps[0](Region(2, 4))
    assert local.maps[0](Region(3, 5)) == Region(2, 4)
