# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""What others do, on the same cost model and judged by the same simulator."""
from __future__ import annotations

from intradp_ros.systems.sharing.baselines.simple import best_cut, best_local, best_offload

LOCAL, OFFLOAD, CUT, SHARED = 'local', 'offload', 'cut', 'shared'
DSCCS, SPSO_GA = 'dsccs', 'spso-ga'
BASELINES = (LOCAL, OFFLOAD, CUT, DSCCS, SPSO_GA)
STRATEGIES = (*BASELINES, SHARED)
#: Schedules of a book that nobody asks for by name: for devices that are no longer as fast, to
#: each other, as profiled.
UNEVEN = 'uneven'

__all__ = ['BASELINES', 'best_cut', 'best_local', 'best_offload', 'CUT', 'DSCCS', 'LOCAL',
           'OFFLOAD', 'SHARED', 'SPSO_GA', 'STRATEGIES', 'UNEVEN']
