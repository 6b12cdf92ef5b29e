# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""What of a real profile holds for an emulated device."""
from __future__ import annotations

import torch

from intradp_lab.testbed.devices import as_emulated
from intradp_ros.profiling.encoding_measurement import measure_encodings
from intradp_ros.profiling.profile import OperatorTiming, Profile, TransportCost


def test_neither_compression_nor_the_cost_of_moving_bytes() -> None:
    grid, zeros = torch.zeros(4096, dtype=torch.bool), torch.zeros(4096)
    encodings = tuple(measure_encodings(value) for value in (grid, zeros))
    profile = Profile('digest', 2, 'device', 2, (OperatorTiming((1, 8), (0.1, 0.4)),), 0.4,
                      encodings=encodings, cores=2, moving=TransportCost(1e-3, 1e-8, 2e-3, 2e-8))
    assert profile.crowded and len(encodings[1]) > 1
    emulated = as_emulated(profile)
    assert not emulated.crowded
    assert [set(found) for found in emulated.encodings] == [{'bits'}, set()]
    assert emulated.timings == profile.timings
