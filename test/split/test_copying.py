# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""Rows that are moved or copied: roll, flip, repeat, constant indices, single rows."""
from __future__ import annotations

from dataclasses import replace
from math import prod
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
import numpy as np
import pytest
from single_operator import check_global, check_local, Parameter, rows_that_count, Single
import torch

from intradp_ros.split.calls.copies import taking
from intradp_ros.split.regions.region import Region, RowMap
from intradp_ros.split.split_graph import split_graph

SEEDS = st.integers(0, 10**6)


def image(*shape: int) -> torch.Tensor:
    return torch.arange(prod(shape), dtype=torch.float64).view(shape)


@pytest.mark.parametrize(('name', 'rest', 'dim'), [
    ('roll.default', ([1], [1]), 2),
    ('roll.default', ([3], [2]), 2),
    ('roll.default', ([-2, 4], [2, 3]), 2),
    ('roll.default', ([5, -12, 2], [-2, 3, 2]), 2),
    ('flip.default', ([1],), 2),
    ('flip.default', ([2],), 2),
    ('flip.default', ([-1, -2],), 2),
    ('fliplr.default', (), 2),
    ('tile.default', ([3, 2],), 2),
    ('tile.default', ([2, 1, 1, 3, 1],), 3),
    ('repeat.default', ([2, 1, 1, 3],), 2),
    ('repeat.default', ([2, 1, 1, 1, 1],), 3),
    ('repeat.default', ([1, 1, 3, 1],), 2),
    ('repeat.default', ([2, 1, 1, 2, 2],), 3),
    ('repeat_interleave.self_int', (2, 1), 2),
    ('repeat_interleave.self_int', (3, -2), 2),
])
def test_moved_rows_are_exact(name: str, rest: tuple[Any, ...], dim: int) -> None:
    single = Single(name, image(1, 3, 7, 5), *rest)
    check_local(single, 2, tolerance=0.0)
    assert single.split(2).dims[1] == dim


@settings(max_examples=30)
@given(st.integers(-20, 20), SEEDS)
def test_rolled_rows_away_from_the_seam_need_no_more_rows(shift: int, seed: int) -> None:
    single = Single('roll.default', image(1, 2, 9, 3), [shift, 1], [2, 3])
    local = check_local(single, 2, seed, tolerance=0.0)
    for region in (Region(0, 1), Region(2, 5), Region(8, 9)):
        assert local.maps[0](region) == rows_that_count(single, region, 2)


def test_rows_left_and_right_change_places() -> None:
    check_local(Single('fliplr.default', image(5, 7)), 1, tolerance=0.0)
    check_local(Single('flipud.default', image(5, 7)), 0, tolerance=0.0)
    check_local(Single('flipud.default', image(5, 7)), 1, tolerance=0.0)


def test_roll_of_the_flattened_tensor_is_global() -> None:
    check_global(Single('roll.default', image(1, 3, 7, 5), [3]), 2)


def test_repetition_of_a_vector_is_exact() -> None:
    check_local(Single('repeat_interleave.self_int', image(6), 2), 0, tolerance=0.0)
    check_global(Single('repeat_interleave.self_int', image(6, 2), 2), 0)


@settings(max_examples=30)
@given(st.lists(st.integers(0, 6), min_size=2, max_size=9), SEEDS)
def test_rows_of_a_constant_index_are_exact(chosen: list[int], seed: int) -> None:
    index = Parameter(torch.tensor(chosen, dtype=torch.int32))
    single = Single('index_select.default', image(1, 3, 7, 5), 2, index)
    local = check_local(single, 2, seed, tolerance=0.0)
    assert local.maps[0](Region(1, 2)) == Region(0, 7)


@pytest.mark.parametrize(('name', 'rest'), [
    ('index_select.default', (2, Parameter(torch.tensor([4, 6, 0])))),
    ('index.Tensor', ([None, None, Parameter(torch.tensor([4, -1, 0]))],)),
])
def test_a_plan_without_parameters_asks_for_the_same_rows(
        name: str, rest: tuple[Any, ...]) -> None:
    single = Single(name, image(1, 3, 7, 5), *rest)
    local = check_local(single, 2, tolerance=0.0)
    shapes = {key: x.to('meta') for key, x in single.parameters.items()}
    planned = split_graph(replace(single.graph, parameters=shapes), 2)
    assert planned.rows == single.split(2).rows
    assert planned.operators[0].maps[0](Region(1, 2)) == local.maps[0](Region(1, 2))


def test_selection_by_index_along_channels_is_exact() -> None:
    index = torch.tensor([2, 0, 3])
    check_local(Single('index_select.default', image(1, 4, 7, 5), 1, Parameter(index)), 2)
    check_local(Single('index_select.default', image(1, 4, 7, 5), 1, index), 2)


def test_many_rows_of_a_computed_index_are_global() -> None:
    single = Single('index_select.default', image(1, 4, 7, 5), 2, torch.tensor([2, 0, 3, 3]))
    check_global(single, 2)


@pytest.mark.parametrize(('start', 'stop'), [(0, 1), (4, 5), (-1, 2**63 - 1)])
def test_slice_of_one_row_needs_that_row_alone(start: int, stop: int) -> None:
    x = image(1, 2, 7, 3)
    split = Single('slice.Tensor', x, 2, start, stop).split(2)
    local, row = split.operators[0], start % 7
    assert (local.rows, split.dims[1]) == (1, None)
    assert local.maps[0](Region(0, 1)) == Region(row, row + 1)
    result = local.bind(Region(0, 1), {})([x[:, :, row:row + 1]])
    assert torch.equal(result, x[:, :, row:row + 1])


@settings(max_examples=100)
@given(st.lists(st.integers(0, 9), min_size=1, max_size=12))
def test_rows_are_taken_in_any_order(rows: list[int]) -> None:
    x = image(2, 10, 3)
    assert torch.equal(taking(1, np.array(rows), 10)(x), x[:, rows])


@settings(max_examples=100)
@given(st.data())
def test_needs_of_regions_are_hulls_of_their_rows(data: Any) -> None:
    spans = data.draw(st.lists(st.tuples(st.integers(0, 20), st.integers(0, 20)), min_size=1,
                               max_size=17))
    row_map = RowMap([20 if a >= b else a for a, b in spans], [0 if a >= b else b
                                                              for a, b in spans])
    regions = [Region(a, b) for b in range(1, len(spans) + 1) for a in range(b)]
    for region in regions:
        need = Region(0, 0)
        for a, b in spans[slice(*region)]:
            need = need.hull(Region(a, b))
        assert row_map(region) == (need or Region(0, 0))
