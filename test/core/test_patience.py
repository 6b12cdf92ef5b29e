# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""Seconds of waiting are those of a machine that has time for the process waited for."""
from __future__ import annotations

from itertools import count

from intradp_ros.core.patience import Patience, share_of_core


def waited(seconds: float, share: float) -> int:
    """Return after how many looks, one a second, patience is over."""
    clock = iter(count())
    patience = Patience(seconds, lambda: float(next(clock)), lambda: share)
    return next(number for number in count(1) if patience.over)


def test_a_busy_machine_is_given_more_time_in_proportion() -> None:
    assert waited(10.0, 1.0) == 11 and waited(10.0, 7.0) == 11
    assert waited(10.0, 0.25) == 41


def test_waiting_ends_whatever_else_runs() -> None:
    assert 199 < waited(10.0, 0.0) < 202


def test_a_share_is_a_part_of_this_machine() -> None:
    assert share_of_core() > 0
