# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""What putting rows together costs is measured where bands will do it."""
from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
import time

import pytest
import torch
from torch import nn

from intradp_ros.profiling.measure import measure_profile
from intradp_ros.profiling.profile import JoinCost, Profile
from intradp_ros.runtime.models.model import share_module
from intradp_ros.split.kernel_device import KernelDevice

pytestmark = pytest.mark.usefixtures('one_thread')

SOURCE = torch.randn(1, 4, 64, 32)
ROW_BYTES = 4 * 32 * 4
ONCE, BYTE = 2e-3, 1e-7


class SlowToJoin(KernelDevice):
    """Takes a known time of the processor for each join."""

    def join(self, pieces: Sequence[torch.Tensor], dim: int) -> torch.Tensor:
        joined = super().join(pieces, dim)
        end = time.thread_time() + ONCE + BYTE * joined.nbytes
        while time.thread_time() < end:
            pass
        return joined


def measured(module: nn.Module, device: KernelDevice | None = None) -> Profile:
    split = share_module(module.eval(), (SOURCE,), 2).split
    return measure_profile(replace(split, device=device or split.device), [SOURCE], budget=0.1)


def test_both_parts_of_the_cost_are_found() -> None:
    found = measured(nn.Conv2d(4, 4, 3, padding=1), SlowToJoin()).joining
    assert found.once == pytest.approx(ONCE, rel=0.2)
    assert found.byte == pytest.approx(BYTE, rel=0.3)


def test_who_reads_its_own_rows_only_joins_nothing() -> None:
    assert measured(nn.Conv2d(4, 4, 1)).joining == JoinCost()


def test_a_profile_keeps_it() -> None:
    profile = measured(nn.Conv2d(4, 4, 3, padding=1))
    assert profile.joining.seconds(1, ROW_BYTES) > 0
    assert Profile.from_json(profile.to_json()) == profile
