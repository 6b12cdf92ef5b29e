# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""Rearranging dimensions, slicing, reshaping, shuffling."""
from __future__ import annotations

from math import prod
from typing import Any

from hypothesis import assume, given, settings
from hypothesis import strategies as st
import pytest
from single_operator import (
    check_global,
    check_local,
    check_yields_rows,
    rows_that_count,
    Single,
)
import torch

from intradp_ros.split.checks.verify import verify
from intradp_ros.split.local_operator import Kind
from intradp_ros.split.regions.region import Region

SEEDS = st.integers(0, 10**6)


def image(*shape: int) -> torch.Tensor:
    return torch.arange(prod(shape), dtype=torch.float64).view(shape)


@pytest.mark.parametrize(('name', 'rest', 'dim'), [
    ('permute.default', ([0, 2, 3, 1],), 1),
    ('permute.default', ([0, -1, 1, -2],), 3),
    ('transpose.int', (1, 2), 1),
    ('transpose.int', (-1, 0), 2),
    ('unsqueeze.default', (0,), 3),
    ('unsqueeze.default', (-1,), 2),
    ('squeeze.default', (), 1),
    ('squeeze.dim', (0,), 1),
    ('squeeze.dim', (2,), 2),
    ('squeeze.dims', ([0, 1],), 1),
    ('expand.default', ([4, 3, -1, 5],), 2),
    ('expand.default', ([2, 1, 3, 7, 5],), 3),
    ('select.int', (1, 0), 1),
    ('select.int', (-1, 2), 2),
    ('channel_shuffle.default', (3,), 2),
])
def test_rearranged_rows_are_exact(name: str, rest: tuple[Any, ...], dim: int) -> None:
    single = Single(name, image(1, 3, 7, 5), *rest)
    local = check_local(single, 2)
    assert single.split(2).dims[1] == dim
    assert local.maps[0](Region(2, 5)) == Region(2, 5)


def test_matrix_transpose_is_exact() -> None:
    check_local(Single('t.default', image(4, 6)), 0)
    check_local(Single('t.default', image(4, 6)), 1)


def test_squeeze_leaves_a_region_of_one_row_its_dimension() -> None:
    single = Single('squeeze.default', image(1, 3, 7, 1))
    check_local(single, 2)


def test_selected_row_is_needed_alone() -> None:
    single = Single('select.int', image(1, 3, 7, 5), 2, -2)
    split = single.split(2)
    local = split.operators[0]
    assert (local.rows, split.dims[1]) == (1, None)
    assert local.maps[0](Region(0, 1)) == Region(5, 6)
    row = local.bind(Region(0, 1), {})([single.inputs[0][:, :, 5:6]])
    assert torch.equal(row, single.inputs[0][:, :, 5])


@settings(max_examples=60)
@given(st.integers(-12, 12), st.integers(-12, 12) | st.just(2**63 - 1), st.integers(1, 4), SEEDS)
def test_slice_is_exact(start: int, stop: int, step: int, seed: int) -> None:
    x = image(1, 2, 10, 3)
    assume(x[:, :, slice(start, stop, step)].shape[2] > 1)
    single = Single('slice.Tensor', x, 2, start, stop, step)
    local = check_local(single, 2, seed)
    region = Region(0, local.rows - 1)
    assert local.maps[0](region) == rows_that_count(single, region, 2)
    check_local(Single('slice.Tensor', x, 3, 1, None, 2), 2, seed)


@pytest.mark.parametrize(('name', 'rest'), [
    ('split.Tensor', (2, 1)),
    ('split_with_sizes.default', ([1, 2], 1)),
    ('chunk.default', (3, -3)),
    ('unbind.int', (1,)),
    ('unbind.int', (-1,)),
])
def test_pieces_of_another_dimension_are_exact(name: str, rest: tuple[Any, ...]) -> None:
    check_local(Single(name, image(1, 3, 7, 2), *rest, read=(0, 1)), 2)


@pytest.mark.parametrize(('name', 'rest'), [
    ('split.Tensor', (4, 2)), ('chunk.default', (2, 2)), ('unbind.int', (2,))])
def test_pieces_of_the_split_dimension_are_global(name: str, rest: tuple[Any, ...]) -> None:
    check_global(Single(name, image(1, 3, 7, 2), *rest, read=(0, 1)), 2)


@pytest.mark.parametrize(('shape', 'axis', 'output', 'dim'), [
    ((1, 6, 8, 5), 2, [1, 2, 3, 8, 5], 3),
    ((1, 2, 3, 8, 5), 3, [1, 6, 8, 5], 2),
    ((1, 6, 8, 5), 2, [1, 6, 40], 2),
    ((2, 6, 8, 5), 2, [12, 40], 1),
    ((1, 6, 40), 2, [1, 6, 8, 5], 2),
    ((1, 8, 6, 5), 1, [8, 30], 0),
    ((1, 1, 8, 5), 2, [1, 40, 1], 1),
    ((1, 2, 6, 4), 2, [1, 2, 4, 6], 2),
    ((1, 2, 6, 4), 2, [2, 8, 3], 1),
    ((1, 2, 6, 4), 3, [2, 6, 2, 2], 2),
])
def test_reshape_is_exact(
        shape: tuple[int, ...], axis: int, output: list[int], dim: int) -> None:
    single = Single('reshape.default', image(*shape), output)
    check_local(single, axis)
    assert single.split(axis).dims[1] == dim


@settings(max_examples=100)
@given(st.data(), SEEDS)
def test_any_reshape_is_exact_and_asks_for_no_row_that_does_not_count(
        data: Any, seed: int) -> None:
    factors = data.draw(st.lists(st.integers(2, 4), min_size=2, max_size=5))
    shape = data.draw(st.sampled_from(groupings(factors)))
    output = data.draw(st.sampled_from(groupings(data.draw(st.permutations(factors)))))
    axis = data.draw(st.integers(0, len(shape) - 1))
    single = Single('view.default', image(*shape), output)
    split = single.split(axis)
    local = split.operators[0]
    assume(local.kind is not Kind.GLOBAL)
    check_local(single, axis, seed)
    region = Region(1, local.rows)
    assert local.maps[0](region) == rows_that_count(single, region, axis)


def groupings(factors: list[int]) -> list[list[int]]:
    """Return all shapes that multiply neighbouring factors."""
    if len(factors) == 1:
        return [factors]
    apart = [[factors[0], *rest] for rest in groupings(factors[1:])]
    return apart + [[factors[0] * rest[0], *rest[1:]] for rest in groupings(factors[1:])]


@pytest.mark.parametrize(('shape', 'axis', 'output'), [
    ((1, 6, 8, 5), 2, [1, 240]),
    ((2, 6, 8, 5), 2, [2, 240]),
    ((2, 6, 8, 5), 3, [12, 40]),
])
def test_reshape_that_buries_the_rows_in_features_is_global(
        shape: tuple[int, ...], axis: int, output: list[int]) -> None:
    check_global(Single('reshape.default', image(*shape), output), axis)


@pytest.mark.parametrize(('shape', 'axis', 'output', 'rows'), [
    ((1, 6, 8, 5), 2, [48, 5], 48),
    ((1, 6, 8, 5), 3, [1, 6, 40], 40),
    ((2, 3, 8, 5, 4), 3, [240, 4], 240),
])
def test_reshape_that_buries_the_rows_among_others_yields_any_of_these(
        shape: tuple[int, ...], axis: int, output: list[int], rows: int) -> None:
    single = Single('reshape.default', image(*shape), output)
    assert check_yields_rows(single, axis, tolerance=0.0).rows == rows


def test_complex_numbers_are_pairs() -> None:
    single = Single('view_as_complex.default', image(1, 3, 7, 2))
    check_local(single, 2, tolerance=0.0)
    check_global(single, 3)
    pairs = Single('view_as_real.default', torch.complex(image(1, 7, 3), image(1, 7, 3)))
    report = verify(pairs.split(1), pairs.inputs)
    assert report.exact and report.split_operators == 1


@pytest.mark.parametrize('diagonal', [-2, 0, 1])
@pytest.mark.parametrize('name', ['tril', 'triu'])
def test_triangles_are_exact(name: str, diagonal: int) -> None:
    single = Single(f'{name}.default', 1 + image(2, 3, 7, 5), diagonal)
    for axis in (0, 1, 2, 3):
        check_local(single, axis, tolerance=0.0)


def test_view_of_cut_rows_is_copied_where_it_must() -> None:
    x = image(1, 2, 3, 8).transpose(2, 3)
    check_local(Single('_unsafe_view.default', x.contiguous(), [2, 8, 3]), 2)
    rows = Single('view.default', x.contiguous(), [2, 24]).split(2)
    kernel = rows.operators[0].bind(Region(0, rows.operators[0].rows), {})
    assert torch.equal(kernel([x]), x.reshape(2, 24))


@pytest.mark.parametrize('axis', [2, 3])
def test_pixel_shuffles_are_exact(axis: int) -> None:
    check_local(Single('pixel_shuffle.default', image(1, 8, 4, 6), 2), axis)
    local = check_local(Single('pixel_unshuffle.default', image(1, 2, 8, 6), 2), axis)
    assert local.maps[0](Region(1, 3)) == Region(2, 6)
