# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""What a camera saw of one frame."""
from __future__ import annotations

from dataclasses import dataclass

#: Seconds after which a frame without an answer counts as lost.
LOST = 20.0


@dataclass(frozen=True, slots=True)
class FrameRow:
    """
    One frame: when it was published (seconds of the monotonic clock), and its answer.

    `answer_s` is NaN if it was lost; `difference` is the greatest one to the
    unsplit model, relative to the spread of its output, and NaN if anything
    in the result is not a number.  `shared` means that the server took part in the
    result, `by_rows` that both computed rows of the same operators, `recovered`
    that the robot finished what the server owed.
    """

    at: float
    answer_s: float
    difference: float
    shared: bool
    recovered: bool
    by_rows: bool = False
