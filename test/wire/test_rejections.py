# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""A cause that goes on is worth a line after growing times; all are counted."""
from __future__ import annotations

from intradp_ros.wire.rejections import Rejections


def test_a_cause_that_goes_on_is_logged_after_growing_times() -> None:
    rejections = Rejections()
    logged = [t / 10 for t in range(3000) if rejections.count('forged', t / 10)]
    assert logged[:6] == [0.0, 1.0, 3.0, 7.0, 15.0, 31.0]
    assert all(b - a <= 60.5 for a, b in zip(logged, logged[1:])) and len(logged) < 13
    assert rejections.total == 3000
    assert rejections.count('other', 300.0)
    assert rejections.count('forged', 600.0), 'after a pause it is new'
    assert rejections.count('forged', 601.0)
