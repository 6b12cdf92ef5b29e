# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""Names of the strategies by which a book has schedules."""
from __future__ import annotations

LOCAL, OFFLOAD, CUT, SHARED = 'local', 'offload', 'cut', 'shared'
BASELINES = (LOCAL, OFFLOAD, CUT)
STRATEGIES = (*BASELINES, SHARED)
#: Schedules of a book that nobody asks for by name: for devices that are no longer as fast, to
#: each other, as profiled.
UNEVEN = 'uneven'
#: Seconds within which energy is minimised, unless another deadline is given.
DEADLINE = 1.0
