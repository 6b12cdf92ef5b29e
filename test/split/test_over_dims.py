# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""Softmax, normalisation, reductions and such: local along other dimensions than their own."""
from __future__ import annotations

from typing import Any

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

from intradp_ros.split.local_operator import Kind


def tensor(*shape: int) -> torch.Tensor:
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(3))


@pytest.mark.parametrize(('name', 'rest'), [
    ('softmax.int', (1,)),
    ('_softmax.default', (-3, False)),
    ('log_softmax.int', (1,)),
    ('cumsum.default', (1,)),
    ('topk.default', (2, 1)),
    ('sort.default', (1,)),
    ('glu.default', (1,)),
    ('mean.dim', ([1],)),
    ('mean.dim', ([1], True)),
    ('sum.dim_IntList', ([-3, 0],)),
    ('amax.default', ([1], True)),
    ('amin.default', ([0, 1],)),
    ('max.dim', (1,)),
    ('min.dim', (1, True)),
    ('argmax.default', (1,)),
    ('argmin.default', (1, True)),
    ('kthvalue.default', (2, 1)),
    ('logcumsumexp.default', (1,)),
    ('median.dim', (1, True)),
    ('mode.default', (1,)),
    ('nansum.default', ([1],)),
    ('nanmedian.dim', (1,)),
    ('cummax.default', (1,)),
    ('prod.dim_int', (1,)),
    ('logsumexp.default', ([1],)),
    ('linalg_vector_norm.default', (2, [1], True)),
])
def test_work_along_channels_is_local_elsewhere(name: str, rest: tuple[Any, ...]) -> None:
    single = Single(name, tensor(1, 4, 7, 5), *rest)
    assert check_local(single, 2).kind is Kind.ROW
    check_local(single, 3)
    reduces = name.startswith(('mean', 'sum', 'a', 'm', 'prod', 'logsumexp', 'linalg'))
    if reduces and not name.startswith(('arg', 'median', 'mode')):
        check_folded(single, 1)
    elif name.startswith(('cum', 'logcum', 'sort')):
        assert check_yields_rows(single, 1).rows == 4
    else:
        check_global(single, 1)


@pytest.mark.parametrize('name', ['max.dim', 'min.dim', 'topk.default', 'sort.default'])
def test_indices_within_other_dimensions_are_exact(name: str) -> None:
    rest = (2, 1) if name == 'topk.default' else (1,)
    check_local(Single(name, tensor(1, 4, 7, 5), *rest, read=(0, 1)), 2)


def test_any_rows_of_both_results_of_a_sort_may_be_kept() -> None:
    check_yields_rows(Single('sort.default', tensor(1, 4, 7, 5), 2, read=(0, 1)), 2)


@pytest.mark.parametrize(('name', 'dims'), [
    ('fft_fft', (-1,)), ('fft_rfft2', (None, [1, 3])), ('fft_ifftn', (None, [3])),
    ('fft_fftshift', ([3],))])
def test_fourier_transforms_of_other_dimensions_are_local(
        name: str, dims: tuple[Any, ...]) -> None:
    rest = dims if dims[0] is None or name == 'fft_fftshift' else (None, *dims)
    single = Single(f'{name}.default', tensor(1, 4, 7, 5), *rest)
    check_local(single, 2)
    assert check_yields_rows(single, 3).rows == (3 if name == 'fft_rfft2' else 5)


@pytest.mark.parametrize('name', ['var', 'std', 'var_mean'])
def test_spread_of_other_dimensions_is_exact(name: str) -> None:
    single = Single(
        f'{name}.correction', tensor(1, 9, 7, 5), [1], correction=1, keepdim=True)
    check_local(single, 2)
    check_folded(single, 1)


def test_reductions_over_all_dimensions_need_all_rows() -> None:
    check_global(Single('argmax.default', tensor(1, 4, 7, 5)), 2)
    check_folded(Single('mean.dim', tensor(1, 4, 7, 5), None), 2)
    check_folded(Single('mean.default', tensor(1, 4, 7, 5)), 2)


def test_layer_norm_is_local_along_tokens() -> None:
    weights = [Parameter(tensor(7, 5)), Parameter(tensor(7, 5))]
    single = Single('layer_norm.default', tensor(2, 4, 7, 5), [7, 5], *weights)
    check_local(single, 1)
    check_folded(single, 2)


@pytest.mark.parametrize('affine', [False, True])
@pytest.mark.parametrize('name', ['group_norm', 'instance_norm'])
def test_norms_by_statistics_travel_as_records(name: str, affine: bool) -> None:
    weights = [Parameter(tensor(4)), Parameter(tensor(4) + 1)] if affine else [None, None]
    rest = [2, *weights] if name == 'group_norm' else [
        *weights, None, None, True, 0.1, 1e-5, False]
    single = Single(f'{name}.default', 3 + tensor(2, 4, 7, 5), *rest)
    for axis in (2, 3):
        split = check_folded(single, axis)
        (value,) = split.graph.output_values
        assert (split.rows[value], split.dims[value]) == (split.rows[0], axis)
    assert check_local(single, 0).kind is Kind.ROW
    check_global(single, 1)


def test_instance_norm_by_running_statistics_is_element_wise() -> None:
    statistics = [Parameter(tensor(4)), Parameter(tensor(4).abs() + 1)]
    single = Single('instance_norm.default', tensor(2, 4, 7, 5), None, None, *statistics, False,
                    0.1, 1e-5, False)
    assert check_local(single, 2).kind is Kind.ELEMENT


def test_embedding_is_local_along_tokens() -> None:
    tokens = torch.tensor([[1, 4, 2, 0, 3, 3]])
    check_local(Single('embedding.default', Parameter(tensor(5, 3)), tokens), 1, tolerance=0.0)
