# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""Interpolation to any size, by size or by scale, in both overloads."""
from __future__ import annotations

from typing import Any

from hypothesis import assume, given, settings
from hypothesis import strategies as st
import pytest
from single_operator import check_global, check_local, rows_that_count, Single
import torch

from intradp_ros.split.regions.region import Region

SEEDS = st.integers(0, 10**6)
EPSILON = torch.finfo(torch.float64).eps
NEAREST = [f'{name}{n}d' for name in ('upsample_nearest', '_upsample_nearest_exact')
           for n in (1, 2, 3)]
PLAIN = ['upsample_linear1d', 'upsample_bilinear2d', 'upsample_trilinear3d']
SMOOTH = ['_upsample_bilinear2d_aa', '_upsample_bicubic2d_aa']
FACTORS = [0.15, 0.5, 1.0, 1.3, 1.7, 2.0, 3.0, 4.0]
LINEAR = [*PLAIN, 'upsample_bicubic2d', *SMOOTH]


@st.composite
def interpolations(draw: Any, names: list[str], dtype: torch.dtype) -> tuple[Single, int]:
    """Return an interpolation, and the axis to split it along."""
    name = draw(st.sampled_from(names))
    spatial = int(name.removesuffix('_aa')[-2])
    torch.manual_seed(draw(SEEDS))
    sizes = [draw(st.integers(1, 9)) for _ in range(spatial)]
    axis = draw(st.integers(2, 1 + spatial))
    sizes[axis - 2] = draw(st.integers(2, 24))
    x = torch.randn(1, 2, *sizes, dtype=dtype)
    aligned = [draw(st.booleans())] if name in LINEAR else []
    factors = [draw(st.sampled_from(FACTORS)) for _ in range(spatial)]
    scaled = [max(1, int(size * factor)) for size, factor in zip(sizes, factors)]
    form = draw(st.sampled_from(['scales', 'sizes', 'default', 'default with scales']))
    rest: list[Any] = {
        'scales': [None, *aligned, factors], 'sizes': [scaled, *aligned, None],
        'default': [scaled, *aligned], 'default with scales': [scaled, *aligned, *factors]}[form]
    overload = 'default' if form.startswith('default') else 'vec'
    assume(name not in SMOOTH or scaled[-1] > 1)  # else ATen repeats one row
    try:
        return Single(f'{name}.{overload}', x, *rest), axis
    except RuntimeError:  # an output without rows, say
        assume(False)
        raise


@settings(max_examples=150)
@given(interpolations(LINEAR, torch.float64), SEEDS)
def test_linear_and_cubic_are_exact(case: tuple[Single, int], seed: int) -> None:
    single, axis = case
    assume(single.values[-1].shape[axis] > 1)
    check_local(single, axis, seed)


@settings(max_examples=60)
@given(interpolations(SMOOTH, torch.float64), SEEDS)
def test_interpolation_without_aliasing_is_exact(case: tuple[Single, int], seed: int) -> None:
    single, axis = case
    assume(single.values[-1].shape[axis] > 1)
    check_local(single, axis, seed)


def test_filtering_to_one_column_is_global() -> None:
    x = torch.randn(1, 3, 12, 1, dtype=torch.float64)
    check_global(Single('_upsample_bilinear2d_aa.vec', x, [5, 1], False, None), 2)


def test_strong_reduction_without_aliasing_needs_the_rows_under_its_filter() -> None:
    torch.manual_seed(0)
    x = torch.randn(1, 3, 120, 7, dtype=torch.float64)
    single = Single('_upsample_bilinear2d_aa.vec', x, [10, 5], False, None)
    assert check_local(single, 2).maps[0](Region(4, 5)) == Region(42, 66)


@settings(max_examples=100)
@given(interpolations(LINEAR, torch.float32), SEEDS)
def test_linear_and_cubic_are_exact_in_single_precision(
        case: tuple[Single, int], seed: int) -> None:
    single, axis = case
    assume(single.values[-1].shape[axis] > 1)
    check_local(single, axis, seed, tolerance=1e-5)


@settings(max_examples=150)
@given(interpolations(NEAREST, torch.float32) | interpolations(NEAREST, torch.float64), SEEDS)
def test_nearest_copies_the_very_rows(case: tuple[Single, int], seed: int) -> None:
    single, axis = case
    assume(single.values[-1].shape[axis] > 1)
    check_local(single, axis, seed, tolerance=0.0)


@settings(max_examples=80)
@given(interpolations(NEAREST + PLAIN, torch.float64), st.data())
def test_asks_for_no_row_that_does_not_count(case: tuple[Single, int], data: Any) -> None:
    single, axis = case
    split = single.split(axis)
    local = split.operators[0]
    assume(local.rows > 1)
    start = data.draw(st.integers(0, local.rows - 1))
    region = Region(start, data.draw(st.integers(start + 1, local.rows)))
    need = local.maps[0](region)
    assert need.covers(rows_that_count(single, region, axis, least=1e-9))
    # weights of some 1e-16 are rounding, and may count or not (cubic ones even more)
    assert rows_that_count(single, region, axis, least=EPSILON).covers(need)


@pytest.mark.parametrize('factor', [2, 3, 8])
@pytest.mark.parametrize('name', ['upsample_nearest2d', 'upsample_bilinear2d'])
def test_large_images_are_exact_in_single_precision(name: str, factor: int) -> None:
    torch.manual_seed(0)
    x = torch.randn(1, 1, 333, 3)
    aligned = [False] if name in LINEAR else []
    single = Single(f'{name}.vec', x, None, *aligned, [float(factor)] * 2)
    check_local(single, 2, tolerance=1e-5 if aligned else 0.0)


def test_nearest_of_integers_is_exact() -> None:
    x = torch.randint(0, 255, (1, 3, 300, 3), dtype=torch.uint8)
    check_local(Single('upsample_nearest2d.vec', x, [450, 5], None), 2, tolerance=0)


def test_interpolation_of_integers_is_global() -> None:
    x = torch.randint(0, 255, (1, 3, 8, 8), dtype=torch.uint8)
    check_global(Single('upsample_bilinear2d.vec', x, [13, 13], False, None), 2)
