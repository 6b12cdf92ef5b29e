# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""Sampling, distances and recurrent layers: operators that need all of one input."""
from __future__ import annotations

from typing import Any

import pytest
from single_operator import check_global, check_local, check_yields_rows, Parameter, Single
import torch

from intradp_ros.split.local_operator import Kind
from intradp_ros.split.regions.region import Region


def tensor(*shape: int, dtype: torch.dtype = torch.float64) -> torch.Tensor:
    generator = torch.Generator().manual_seed(sum(shape))
    return torch.randn(*shape, dtype=torch.float64, generator=generator).to(dtype)


@pytest.mark.parametrize('spatial', [2, 3])
@pytest.mark.parametrize('mode', [0, 1])
def test_samples_follow_the_rows_of_the_grid(spatial: int, mode: int) -> None:
    image = Parameter(tensor(2, 3, *(6, 5, 4)[:spatial]))
    grid = tensor(2, *(7, 4, 3)[:spatial], spatial)
    single = Single('grid_sampler.default', image, grid, mode, 1, False)
    assert check_local(single, 1).kind is Kind.ROW
    check_local(single, 2)
    check_local(single, 0)


def test_image_to_sample_from_is_needed_whole() -> None:
    single = Single('grid_sampler.default', tensor(1, 3, 7, 6), Parameter(tensor(1, 5, 4, 2)),
                    0, 0, True)
    assert check_yields_rows(single, 2).rows == 5
    check_local(single, 1)
    image, grid = tensor(1, 3, 6, 4), tensor(1, 5, 7, 2)
    local = check_local(Single('grid_sampler.default', image, grid, 0, 0, True), 2)
    assert [row_map(Region(2, 3)) for row_map in local.maps] == [Region(0, 6), Region(2, 3)]


@pytest.mark.parametrize('mode', [None, 0, 1, 2])
@pytest.mark.parametrize('count', [7, 40])
def test_distances_are_local_in_either_set(count: int, mode: int | None) -> None:
    first, second = tensor(1, count, 3), tensor(1, 9, 3)
    second[0, :5] = first[0, :5] + 1e-7 * second[0, :5]  # where products are imprecise
    check_local(Single('cdist.default', first, Parameter(second), 2.0, mode), 1)
    check_local(Single('cdist.default', Parameter(second), first, 2.0, mode), 1)
    check_local(Single('cdist.default', first, second), 1)


def test_distances_over_the_rows_are_global() -> None:
    check_global(Single('cdist.default', tensor(1, 4, 7), Parameter(tensor(5, 7))), 2)


def test_similarity_is_local_but_along_the_vectors() -> None:
    x = tensor(1, 4, 7, 5)
    for other in (tensor(1, 4, 7, 5), Parameter(tensor(4, 1, 5)), Parameter(tensor(4, 7, 1))):
        single = Single('cosine_similarity.default', x, other, 1)
        check_local(single, 2)
        check_local(single, 3)
        check_global(single, 1)
    for keepdim in (False, True):
        single = Single('pairwise_distance.default', x, Parameter(x + 1), 2.0, 1e-6, keepdim)
        check_local(single, 2)
        check_global(single, 3)


def weights(gates: int) -> list[Parameter]:
    return [
        Parameter(tensor(*shape)) for _ in range(2)
        for shape in ((gates * 3, 5), (gates * 3, 3), (gates * 3,), (gates * 3,))]


@pytest.mark.parametrize('batch_first', [True, False])
@pytest.mark.parametrize(('name', 'gates'), [
    ('lstm', 4), ('gru', 3), ('rnn_tanh', 1), ('rnn_relu', 1)])
def test_recurrent_layer_is_local_along_its_batch(
        name: str, gates: int, batch_first: bool) -> None:
    x, batch = tensor(6, 7, 5), 6 if batch_first else 7
    hidden = Parameter(tensor(2, batch, 3))
    states: Any = [hidden, Parameter(tensor(2, batch, 3) + 1)] if name == 'lstm' else hidden
    single = Single(
        f'{name}.input', x, states, weights(gates), True, 1, 0.0, False, True, batch_first)
    batch_axis = 0 if batch_first else 1
    check_local(single, batch_axis)
    check_global(single, 1 - batch_axis)
