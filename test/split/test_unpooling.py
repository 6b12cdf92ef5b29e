# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""Unpooling by the indices of a pooling."""
from __future__ import annotations

from typing import Any

from hypothesis import assume, given, settings
from hypothesis import strategies as st
import pytest
from single_operator import check_global, check_local, Parameter, Single
import torch
from torch import nn
from torch.nn import functional

from intradp_ros.graph.capture import capture
from intradp_ros.split.checks.verify import verify
from intradp_ros.split.local_operator import Kind
from intradp_ros.split.regions.region import Region
from intradp_ros.split.split_graph import split_graph


class Unpool(nn.Module):
    """Pools, changes the values, and puts them back."""

    def __init__(self, spatial: int, **settings: Any) -> None:
        super().__init__()
        self.pool = getattr(functional, f'max_pool{spatial}d')
        self.unpool = getattr(functional, f'max_unpool{spatial}d')
        self.settings = settings

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        pooled, indices = self.pool(x, **self.settings, return_indices=True)
        kept = {k: v for k, v in self.settings.items() if k not in ('dilation', 'ceil_mode')}
        unpooled: torch.Tensor = self.unpool(
            pooled.tanh() + 2, indices, **kept, output_size=x.shape[2:])
        return unpooled


@settings(max_examples=20)
@given(st.data(), st.integers(0, 10**6))
def test_unpooling_is_exact(data: Any, seed: int) -> None:
    spatial = data.draw(st.integers(2, 3))
    kernel = [data.draw(st.integers(1, 4)) for _ in range(spatial)]
    stride = [data.draw(st.integers(max(1, k - 2), k + 1)) for k in kernel]
    padding = [data.draw(st.integers(0, k // 2)) for k in kernel]
    size = [data.draw(st.integers(4, 10)) for _ in range(spatial)]
    axis = data.draw(st.integers(2, 1 + spatial))
    torch.manual_seed(seed)
    x = torch.randn(1, 2, *size, dtype=torch.float64)
    model = Unpool(
        spatial, kernel_size=kernel, stride=stride, padding=padding,
        ceil_mode=data.draw(st.booleans()))
    try:
        graph = capture(model, x)
    except (RuntimeError, ValueError):  # an output size that unpooling does not accept
        assume(False)
        raise
    split = split_graph(graph, axis)
    assume(split.operators[0].rows > 1)
    assert all(local.kind is not Kind.GLOBAL for local in split.operators)
    for parts in (2, 3):
        assert verify(split, [x], parts, seed).exact


def test_unpooled_row_needs_the_rows_that_were_pooled_from_it() -> None:
    x = torch.randn(1, 2, 12, 6, dtype=torch.float64)
    split = split_graph(capture(Unpool(2, kernel_size=2), x), 2)
    assert [row_map(Region(4, 7)) for row_map in split.operators[-1].maps] == [Region(2, 4)] * 2


def test_indices_of_unknown_origin_make_unpooling_global_but_along_channels() -> None:
    x = torch.randn(2, 3, 4, 4, dtype=torch.float64)
    indices = torch.arange(16).flip(0).view(4, 4).expand(2, 3, 4, 4).contiguous()
    single = Single('max_unpool2d.default', x, indices, [4, 4])
    check_global(single, 2)
    check_local(single, 1)
    check_local(single, 0)
    check_global(Single('max_unpool2d.default', x, Parameter(indices), [4, 4]), 2)


@pytest.mark.parametrize('axis', [2, 3])
def test_network_that_unpools_runs_in_parts(axis: int) -> None:
    class SegNet(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.down = nn.ModuleList(nn.Conv2d(a, b, 3, 1, 1) for a, b in ((3, 8), (8, 12)))
            self.up = nn.ModuleList(nn.Conv2d(a, b, 3, 1, 1) for a, b in ((12, 8), (8, 5)))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            kept = []
            for conv in self.down:
                x, indices = functional.max_pool2d(conv(x).relu(), 2, return_indices=True)
                kept.append(indices)
            for conv, indices in zip(self.up, reversed(kept)):
                x = conv(functional.max_unpool2d(x, indices, 2))
            return x

    torch.manual_seed(0)
    x = torch.randn(1, 3, 24, 32, dtype=torch.float64)
    split = split_graph(capture(SegNet().double(), x), axis)
    report = verify(split, [x])
    assert report.exact
    assert report.split_share == 1.0
