# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""Rows under sliding windows."""
from __future__ import annotations

import tracemalloc

from hypothesis import assume, given, settings
from hypothesis import strategies as st
import numpy as np
import torch
from torch.nn.functional import conv1d

from intradp_ros.split.regions.region import Region
from intradp_ros.split.regions.sliding_window import Window

WINDOWS = st.builds(
    Window, size=st.integers(1, 9), stride=st.integers(1, 5), before=st.integers(0, 12),
    dilation=st.integers(1, 7), input_rows=st.integers(1, 20), output_rows=st.integers(1, 20))


@settings(max_examples=500)
@given(WINDOWS)
def test_rows_are_those_that_a_window_touches(window: Window) -> None:
    """From the first to the last one that is not a padding; none where all are."""
    for row in range(window.output_rows):
        start = row * window.stride - window.before
        taps = [tap for k in range(window.size)
                if 0 <= (tap := start + k * window.dilation) < window.input_rows]
        assert window.row_map.first[row] == min(taps, default=window.input_rows)
        assert window.row_map.last[row] == max(taps, default=-1) + 1


def test_a_vast_window_takes_no_memory() -> None:
    """Graphs come from the network, too."""
    window = Window(2**24, 2, 0, 1, 96, 48)
    tracemalloc.start()
    try:
        assert np.all(window.row_map.last == 96)
        assert tracemalloc.get_traced_memory()[1] < 10**6
    finally:
        tracemalloc.stop()


@given(st.integers(1, 5), st.integers(1, 3), st.integers(0, 4), st.integers(1, 2),
       st.integers(1, 20), st.tuples(st.integers(0, 30), st.integers(1, 30)))
@settings(max_examples=300)
def test_as_many_rows_padded_on_both_sides(size: int, stride: int, padding: int, dilation: int,
                                           height: int, chosen: tuple[int, int]) -> None:
    count = (height + 2 * padding - dilation * (size - 1) - 1) // stride + 1
    assume(count > 0)
    window = Window(size, stride, padding, dilation, height, count)
    start = min(chosen[0], count - 1)
    region = Region(start, min(count, start + chosen[1]))
    alike, handed = window.padded_alike(region), window.row_map(region)
    before, after = window.missing(region)
    if alike is None:
        assert not handed or before != after
        return
    source, weight = torch.randn(1, 1, height), torch.randn(1, 1, size)
    whole = conv1d(source, weight, None, stride, padding, dilation)
    made = conv1d(source[..., handed.start:handed.stop], weight, None, stride, alike.padding,
                  dilation)
    assert made.shape[-1] == alike.made
    torch.testing.assert_close(
        made.narrow(2, alike.skipped, region.rows), whole[..., region.start:region.stop])
