# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""Concatenation and stacking of split, unsplit and constant operands."""
from __future__ import annotations

from collections.abc import Sequence

from hypothesis import given, settings
from hypothesis import strategies as st
import pytest
from single_operator import check_global, check_local, Parameter, Single
import torch
from torch import nn

from intradp_ros.graph.capture import capture
from intradp_ros.split.checks.verify import verify
from intradp_ros.split.local_operator import Kind
from intradp_ros.split.regions.region import Region
from intradp_ros.split.split_graph import split_graph

SEEDS = st.integers(0, 10**6)


def values(*shapes: Sequence[int]) -> list[torch.Tensor]:
    torch.manual_seed(0)
    return [torch.randn(*shape, dtype=torch.float64) for shape in shapes]


@settings(max_examples=60)
@given(st.lists(st.integers(1, 7), min_size=2, max_size=5), st.integers(2, 3), SEEDS)
def test_end_to_end_is_exact(sizes: list[int], axis: int, seed: int) -> None:
    sizes[0] += 1  # the first operand is split; those of a single row are not
    shapes = [[1, 2, 3, n] if axis == 3 else [1, 2, n, 3] for n in sizes]
    operands = values(*shapes)
    given_as = [Parameter(x) if k % 3 == 2 else x for k, x in enumerate(operands)]
    check_local(Single('cat.default', given_as, axis), axis, seed)


def test_end_to_end_needs_nothing_of_operands_elsewhere() -> None:
    local = check_local(Single('cat.default', values((1, 1, 4), (1, 1, 6)), -1), 2)
    assert not local.maps[1](Region(0, 4))
    assert local.maps[0](Region(3, 7)) == Region(3, 4)
    assert local.maps[1](Region(3, 7)) == Region(0, 3)


@pytest.mark.parametrize('dim', [1, -3, 3])
@pytest.mark.parametrize('axis', [2, 0])
def test_side_by_side_is_exact(dim: int, axis: int) -> None:
    *others, last = values(*[(3, 4, 6, 5)] * 3)
    check_local(Single('cat.default', [*others, Parameter(last)], dim), axis)


class Exponentials(nn.Module):
    """Add the exponential of matrices to them, whose rows no rule splits."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + torch.linalg.matrix_exp(x)


def test_unsplit_operand_is_cut_to_the_region() -> None:
    (x,) = values((2, 6, 6))
    split = split_graph(capture(Exponentials(), x), 1)
    exponential, added = split.operators
    assert exponential.kind is Kind.GLOBAL
    assert added.kind is Kind.ELEMENT
    assert added.maps[1](Region(2, 3)) == Region(0, 1)  # one row: all of the unsplit value
    assert verify(split, [x]).exact


@pytest.mark.parametrize('name', ['vstack', 'hstack', 'dstack'])
def test_joined_by_name_is_exact(name: str) -> None:
    for axis in (0, 1, 2):
        check_local(Single(f'{name}.default', values((4, 6, 5), (4, 6, 5))), axis)
    check_global(Single('hstack.default', values((4,), (4,))), 0)


@pytest.mark.parametrize('dim', [0, 2, 3, -1, -2])
def test_stack_is_exact(dim: int) -> None:
    check_local(Single('stack.default', values((1, 2, 7, 3), (1, 2, 7, 3)), dim), 2)


def test_operands_of_other_rank_or_without_split_are_left_whole() -> None:
    vector, image = values((0,), (1, 2, 5))
    check_global(Single('cat.default', [vector, image], 2), 2)
    columns = Single('cat.default', values((1, 1, 1), (1, 1, 1)), 2).split()
    assert columns.operators[0].kind is Kind.GLOBAL
