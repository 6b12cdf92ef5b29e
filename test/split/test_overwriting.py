# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""Values with a slice overwritten by another value, as in-place writes are captured."""
from __future__ import annotations

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


def image(*shape: int, seed: int = 3) -> torch.Tensor:
    return torch.randn(
        *shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


@settings(max_examples=30)
@given(st.integers(-9, 8), st.integers(1, 6), SEEDS)
def test_rows_overwritten_by_rows_are_exact(start: int, count: int, seed: int) -> None:
    first = start % 9
    count = min(count, 9 - first)
    new = image(1, 2, count, 3, seed=4)
    single = Single('slice_scatter.default', image(1, 2, 9, 3), new, 2, start, first + count)
    local = check_local(single, 2, seed, tolerance=0.0)
    assert local.maps[0](Region(2, 5)) == Region(2, 5)
    constant = Single(
        'slice_scatter.default', image(1, 2, 9, 3), Parameter(new), 2, start, first + count)
    check_local(constant, 2, seed, tolerance=0.0)


def test_rows_are_written_to_a_constant() -> None:
    single = Single('slice_scatter.default', Parameter(image(1, 2, 9, 3)), image(1, 2, 4, 3), 2, 3,
                    7)
    local = check_local(single, 2, tolerance=0.0)
    assert local.maps[0](Region(0, 5)) == Region(0, 2)
    assert not local.maps[0](Region(7, 9))


@pytest.mark.parametrize('axis', [1, 2])
def test_writes_to_other_dimensions_are_exact(axis: int) -> None:
    single = Single('slice_scatter.default', image(1, 6, 9, 8), image(1, 6, 9, 2), 3, 1, 5, 2)
    check_local(single, axis, tolerance=0.0)
    check_global(single, 3)
    single = Single('select_scatter.default', image(1, 6, 9, 8), image(1, 6, 9), -1, 2)
    check_local(single, axis, tolerance=0.0)


@pytest.mark.parametrize('index', [0, 4, -1])
def test_one_row_overwritten_is_exact(index: int) -> None:
    row = image(1, 2, 3, seed=4)
    single = Single('select_scatter.default', image(1, 2, 9, 3), row, 2, index)
    local = check_local(single, 2, tolerance=0.0)
    assert not local.maps[1](Region(1, 4))
    check_local(Single('select_scatter.default', image(1, 2, 9, 3), Parameter(row), 2, index), 2,
                tolerance=0.0)


class Border(nn.Module):
    """Write to rows, columns and channels of zeros, and of what was convolved."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 4, 3, padding=1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.conv(x)
        frame = torch.zeros_like(y)
        frame[:, :, 2:-3] = y[:, :, 2:-3]
        frame[:, 1] = 1.0
        frame[:, :, 0] = y[:, :, -1]
        y[..., 1:4] = frame[..., 1:4]
        return self.conv(y[:, :3])


def test_writes_in_place_are_local() -> None:
    x = torch.rand(1, 3, 12, 10, dtype=torch.float64)
    split = split_graph(capture(Border().double(), x), 2)
    assert all(local.kind is not Kind.GLOBAL for local in split.operators
               if 'scatter' in local.operator.target)
    assert verify(split, [x]).exact
