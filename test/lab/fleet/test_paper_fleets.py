# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""What a plan for links of its own loses on shared air (Dora, Fig. 2)."""
from intradp_lab.fleet.paper_fleets import contention


def test_fast_air_costs_a_plan_for_links_of_its_own_little() -> None:
    row = contention('BERT 0.1B', 2.6e9)
    assert row is not None
    assert row.dedicated < row.shared < 1.1 * row.dedicated
    assert row.ours <= row.shared


def test_slower_air_costs_it_more_than_twice() -> None:
    row = contention('BERT 0.1B', 160e6)
    assert row is not None
    assert row.shared > 2 * row.dedicated
    assert row.ours < row.shared / 2
