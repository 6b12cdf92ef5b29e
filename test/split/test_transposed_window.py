# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""Rows that add to others under transposed windows."""
from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from intradp_ros.split.regions.transposed_window import Spread

SPREADS = st.builds(
    Spread, size=st.integers(1, 9), stride=st.integers(1, 6), before=st.integers(0, 12),
    dilation=st.integers(1, 8), input_rows=st.integers(1, 20), output_rows=st.integers(1, 40))


@settings(max_examples=1000)
@given(SPREADS)
def test_rows_are_those_that_add_to_a_row(spread: Spread) -> None:
    """From the first to the last; none where nothing adds."""
    reached: dict[int, list[int]] = {}
    for row in range(spread.input_rows):
        for k in range(spread.size):
            reached.setdefault(row * spread.stride - spread.before + k * spread.dilation,
                               []).append(row)
    for row in range(spread.output_rows):
        rows = reached.get(row, [])
        assert spread.row_map.first[row] == min(rows, default=spread.input_rows)
        assert spread.row_map.last[row] == max(rows, default=-1) + 1
