# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""
One rate for both ways of a link.

Schedules are made for one rate.  Where the ways differ, the rate that counts
is the one at which the bytes of an inference would take as long as they do:
what crosses in a short burst is measured with little accuracy, mostly too
low, and should not decide over the way that carries most of the bytes.
"""
from __future__ import annotations

#: The schedule that is chosen next may use the slower way more than the last one did: no more
#: than this many times its rate is believed.
MOST_OVER_SLOWER = 1.5


def rate_of_both(up: float, down: float, bytes_up: float, bytes_down: float) -> float:
    """
    Return the rate at which bytes both ways take as long as they do at the rates of the ways.

    Any unit; rates must be positive.  Without bytes both ways count alike.
    """
    if bytes_up + bytes_down <= 0:
        bytes_up = bytes_down = 1.0
    together = (bytes_up + bytes_down) / (bytes_up / up + bytes_down / down)
    return min(together, MOST_OVER_SLOWER * min(up, down))
