# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""Padding, by constant, reflection, border row, or around."""
from __future__ import annotations

from typing import Any

from hypothesis import assume, given, settings
from hypothesis import strategies as st
import pytest
from single_operator import check_local, Single
import torch

from intradp_ros.split.regions.region import Region

SEEDS = st.integers(0, 10**6)


@settings(max_examples=120)
@given(
    st.sampled_from(['constant', 'reflect', 'replicate', 'circular']), st.integers(1, 3),
    st.integers(0, 2), SEEDS, st.data())
def test_pad_is_exact(mode: str, pairs: int, axis: int, seed: int, data: Any) -> None:
    torch.manual_seed(seed)
    sizes = [data.draw(st.integers(4, 8)) for _ in range(3)]
    x = torch.randn(1, *sizes, dtype=torch.float64) if pairs < 3 else torch.randn(
        1, 1, *sizes, dtype=torch.float64)
    low = -1 if mode == 'constant' else 0
    widths = [data.draw(st.integers(low, 3)) for _ in range(2 * pairs)]
    value = [1.5] if mode == 'constant' else []
    if mode != 'constant' and pairs == 1:
        x = x[0]
    axis += x.dim() - 3
    single = Single('pad.default', x, widths, mode, *value)
    assume(x.shape[axis] > 1 and single.values[-1].shape[axis] > 1)
    check_local(single, axis, seed)


@pytest.mark.parametrize('name', ['reflection_pad', 'replication_pad'])
@pytest.mark.parametrize('spatial', [1, 2, 3])
def test_padding_by_own_operator_is_exact(name: str, spatial: int) -> None:
    x = torch.randn(1, 2, *[5] * spatial, dtype=torch.float64)
    for axis in range(2, 2 + spatial):
        check_local(Single(f'{name}{spatial}d.default', x, [2, 1] * spatial), axis)


def test_wide_constant_border_needs_no_rows() -> None:
    x = torch.randn(1, 1, 4, 4, dtype=torch.float64)
    local = check_local(Single('constant_pad_nd.default', x, [0, 0, 5, 5], 2.0), 2)
    assert not local.maps[0](Region(0, 4))
    assert local.maps[0](Region(4, 7)) == Region(0, 2)
