# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""The number of a plan (whose reign it is of, and which of its plans), and its error."""
from __future__ import annotations

from typing import NamedTuple


class PlanId(NamedTuple):
    """
    A coordinator's term and the epoch of its plan; both only grow, so that plans are ordered.

    On the wire the term is the frame's session.
    """

    term: int
    epoch: int


NO_PLAN = PlanId(0, 0)


class PlanError(ValueError):
    """A plan that cannot be run, of any system; the text says why."""
