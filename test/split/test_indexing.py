# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""Look-ups and writes by index."""
from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
import pytest
from single_operator import check_global, check_local, check_yields_rows, Parameter, Single
import torch

from intradp_ros.split.local_operator import Kind
from intradp_ros.split.regions.region import Region


def tensor(*shape: int) -> torch.Tensor:
    return torch.randn(shape, dtype=torch.float64, generator=torch.Generator().manual_seed(3))


def places(stop: int, *shape: int) -> torch.Tensor:
    return torch.randint(stop, shape, generator=torch.Generator().manual_seed(5))


@settings(max_examples=80)
@given(st.data())
def test_index_is_local_along_dimensions_it_does_not_choose_from(data: Any) -> None:
    x = tensor(3, 4, 7, 5)
    axis = data.draw(st.integers(0, 3))
    chosen = data.draw(st.sets(st.integers(0, 3).filter(lambda k: k != axis), min_size=1))
    indices: list[Any] = [None] * (1 + max(chosen))
    for k in chosen:
        shape = data.draw(st.sampled_from([(2,), (3, 2), (3, 1)]))
        indices[k] = Parameter(places(x.shape[k], *shape) - x.shape[k] // 2)
    check_local(Single('index.Tensor', x, indices), axis, tolerance=0.0)


@pytest.mark.parametrize(('indices', 'axis'), [
    ([None, (2,)], 2), ([(2,)], 1), ([(2,), None, (2,)], 1), ([None, (2, 3), None, (3,)], 2),
    ([None, None, None, (4, 2)], 2), ([None, (2,), (1,)], 3)])
def test_index_keeps_rows_wherever_they_end_up(indices: list[Any], axis: int) -> None:
    chosen = [None if i is None else Parameter(places(3, *i)) for i in indices]
    check_local(Single('index.Tensor', tensor(3, 4, 7, 5), chosen), axis, tolerance=0.0)


def test_rows_of_an_index_choose_from_all_of_the_input() -> None:
    index = places(6, 1, 7, 5)
    single = Single('index.Tensor', Parameter(tensor(6, 3)), [index])
    assert check_local(single, 1, tolerance=0.0).kind is Kind.ROW
    rows = places(6, 1, 7, 6)
    local = check_local(Single('index.Tensor', tensor(1, 6, 3), [None, rows]), 1)
    assert local.kind is Kind.ROW


def test_choice_of_rows_by_a_constant_index_may_need_any_row() -> None:
    index = Parameter(torch.tensor([0, 2, 2, -2, 6]))
    local = check_local(Single('index.Tensor', tensor(1, 4, 7), [None, None, index]), 2)
    assert local.maps[0](Region(1, 4)) == Region(0, 7)
    both = Parameter(index.tensor % 4)
    check_global(Single('index.Tensor', tensor(1, 4, 7), [None, both, both]), 2)


def test_choice_by_a_mask_is_global() -> None:
    mask = Parameter(torch.tensor([True, False, True, False]))
    check_global(Single('index.Tensor', tensor(1, 4, 7, 5), [None, mask]), 2)


def test_gather_is_local_elsewhere_and_along_its_index() -> None:
    x, index = tensor(1, 4, 7, 5), places(4, 1, 3, 7, 5)

    def single(dim: int, x: Any, index: Any) -> Single:
        return Single('gather.default', x, dim, index)

    check_local(single(1, x, index), 2)
    check_local(single(-3, x, Parameter(index)), 3)
    assert check_yields_rows(single(2, x, Parameter(places(7, 1, 4, 3, 5))), 2).rows == 3
    local = check_local(single(1, tensor(1, 6, 2), places(6, 1, 9, 2)), 1)
    assert [row_map(Region(2, 3)) for row_map in local.maps] == [Region(0, 6), Region(2, 3)]


@pytest.mark.parametrize('name', ['scatter.src', 'scatter_add.default', 'scatter_reduce.two'])
def test_scatter_is_local_along_other_dimensions(name: str) -> None:
    x, index, source = tensor(1, 4, 7, 5), places(4, 1, 3, 7, 5), tensor(1, 3, 7, 5)
    rest = ['amax'] if name == 'scatter_reduce.two' else []
    check_local(Single(name, x, 1, index, source, *rest), 2)
    check_local(Single(name, Parameter(x), 1, index, Parameter(source), *rest), 2)
    check_yields_rows(Single(name, x, 2, Parameter(index), Parameter(source), *rest), 2)


def test_scatter_of_a_number_is_local_along_other_dimensions() -> None:
    x, index = tensor(1, 4, 7, 5), places(4, 1, 3, 7, 5)
    check_local(Single('scatter.value', x, 1, index, 2.5), 2)
    check_yields_rows(Single('scatter.value', x, 2, Parameter(places(7, 1, 4, 3, 5)), 2.5), 2)


@pytest.mark.parametrize('name', ['index_add', 'index_copy'])
def test_write_of_slices_is_local_along_other_dimensions(name: str) -> None:
    index = Parameter(torch.tensor([3, 1]))
    single = Single(f'{name}.default', tensor(1, 4, 7, 5), 1, index, tensor(1, 2, 7, 5))
    check_local(single, 2)
    assert check_yields_rows(single, 1).rows == 4


@pytest.mark.parametrize('value', [1.5, Parameter(torch.tensor(2.0, dtype=torch.float64))])
def test_filling_by_index_is_local_along_other_dimensions(value: Any) -> None:
    overload = 'int_Tensor' if isinstance(value, Parameter) else 'int_Scalar'
    index = Parameter(torch.tensor([3, 1]))
    single = Single(f'index_fill.{overload}', tensor(1, 4, 7, 5), 1, index, value)
    check_local(single, 2)
    check_yields_rows(single, 1)


@pytest.mark.parametrize(('indices', 'values', 'axis'), [
    ([None, (3,)], (1, 3, 7, 5), 2), ([None, (3,)], (7, 5), 2), ([None, (3,)], (7, 1), 3),
    ([(3,), (3,)], (3, 7, 5), 3), ([(3,), None, None, (3,)], (3, 1, 7), 2),
    ([None, (3,)], (), 2)])
def test_write_by_indices_is_local_along_other_dimensions(
        indices: list[Any], values: tuple[int, ...], axis: int) -> None:
    chosen = [None if i is None else Parameter(torch.arange(*i)) for i in indices]
    x = tensor(3 if chosen[0] else 1, 4, 7, 5)
    for written in (tensor(*values), Parameter(tensor(*values))):
        check_local(Single('index_put.default', x, chosen, written), axis)
    indexed = next(k for k, index in enumerate(chosen) if index is not None)
    check_yields_rows(Single('index_put.default', x, chosen, Parameter(tensor(*values))), indexed)


@pytest.mark.parametrize('accumulate', [False, True])
def test_points_written_to_a_grid_give_any_rows_of_it(accumulate: bool) -> None:
    grid, points = Parameter(torch.zeros(4, 6, 9, dtype=torch.float64)), tensor(4, 20)
    rows, columns = places(6, 20), places(9, 20)
    if not accumulate:  # of two points in one place it is not defined which one is written last
        rows, columns = torch.arange(20) // 9, torch.arange(20) % 9
    chosen = [None, Parameter(rows), Parameter(columns)]
    single = Single('index_put.default', grid, chosen, points, accumulate)
    assert check_yields_rows(single, 1).rows == 9


def test_embedding_is_local_along_tokens() -> None:
    tokens = torch.tensor([[1, 4, 2, 0, 3, 3]])
    check_local(Single('embedding.default', Parameter(tensor(5, 3)), tokens), 1, tolerance=0.0)


def test_encoding_of_classes_is_local_if_their_count_is_known() -> None:
    classes = places(5, 1, 7, 4)
    check_local(Single('one_hot.default', classes, 6), 1, tolerance=0.0)
    check_global(Single('one_hot.default', classes), 1)


def test_places_in_a_table_are_local_along_what_is_looked_up() -> None:
    x = tensor(1, 7, 4)
    check_local(Single('bucketize.Tensor', x, Parameter(torch.arange(-2.0, 2.0))), 1)
    check_local(Single('isin.Tensor_Tensor', places(5, 1, 7, 4), Parameter(places(5, 3))), 1)
    check_local(Single('take.default', Parameter(x), places(28, 1, 6, 2)), 1)
    check_global(Single('take.default', x, Parameter(places(28, 6))), 1)
