# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""Einstein sums."""
from __future__ import annotations

from typing import Any

from hypothesis import assume, given, settings
from hypothesis import strategies as st
import pytest
from single_operator import check_global, check_local, Parameter, Single
import torch

from intradp_ros.split.local_operator import Kind
from intradp_ros.split.regions.region import Region

SIZES = {'a': 2, 'b': 3, 'c': 4, 'd': 5, 'e': 6}


def tensor(*shape: int) -> torch.Tensor:
    return torch.randn(
        *shape, dtype=torch.float64, generator=torch.Generator().manual_seed(sum(shape)))


@settings(max_examples=150)
@given(st.data(), st.integers(0, 10**6))
def test_sum_is_local_along_the_labels_that_it_keeps(data: Any, seed: int) -> None:
    letters = st.lists(st.sampled_from(sorted(SIZES)), unique=True)
    terms = [data.draw(letters.filter(bool)) for _ in range(data.draw(st.integers(1, 3)))]
    known = sorted(set().union(*terms))
    result = data.draw(st.lists(st.sampled_from(known), unique=True))
    axis = data.draw(st.integers(0, len(terms[0]) - 1))
    if len(terms[0]) > 2 > axis:
        axis = 2
    operands = [tensor(*[SIZES[x] for x in term]) for term in terms]
    fixed = [x if k == 0 else Parameter(x) for k, x in enumerate(operands)]
    equation = ','.join(''.join(term) for term in terms) + '->' + ''.join(result)
    single = Single('einsum.default', equation, fixed)
    assume(single.inputs[0].dim() > axis)
    if terms[0][axis] in result:
        assert check_local(single, axis, seed).kind is Kind.ROW
    else:
        assert single.split(axis).operators[0].kind is Kind.GLOBAL


@pytest.mark.parametrize(('equation', 'shapes', 'axis'), [
    ('...ij,...jk->...ik', [(2, 3, 7, 4), (3, 4, 5)], 2),
    ('...ij,...jk->...ik', [(2, 3, 7, 4), (3, 4, 5)], 1),
    ('...i,...j', [(2, 7, 4), (2, 7, 5)], 1),
    (' b h w c , h k c -> b h w k', [(2, 7, 5, 3), (7, 4, 3)], 1),
    ('bhwc,wkc->bhwk', [(2, 7, 5, 3), (5, 4, 3)], 2),
    ('bij,bjk', [(2, 7, 4), (2, 4, 5)], 1),
    ('Zba,a->Zb', [(2, 7, 4), (4,)], 1),
    ('i...->...i', [(3, 7, 4)], 1),
])
def test_ellipsis_spaces_and_results_left_out(
        equation: str, shapes: list[tuple[int, ...]], axis: int) -> None:
    first, *others = (tensor(*shape) for shape in shapes)
    check_local(Single('einsum.default', equation, [first, *map(Parameter, others)]), axis)
    check_local(Single('einsum.default', equation, [first, *others]), axis)


def test_operands_without_the_label_are_needed_whole() -> None:
    operands = [tensor(1, 7, 4), tensor(1, 6, 4)]
    local = check_local(Single('einsum.default', 'bqc,bkc->bqk', operands), 1)
    assert [row_map(Region(2, 3)) for row_map in local.maps] == [Region(2, 3), Region(0, 6)]


def test_diagonal_is_global() -> None:
    check_global(Single('einsum.default', 'ii->i', [tensor(6, 6)]), 0)


def test_label_of_size_one_is_broadcast() -> None:
    operands = [tensor(1, 7, 4), tensor(1, 1, 4)]
    check_local(Single('einsum.default', 'bqc,bqc->bq', operands), 1)
