# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""Whatever happens to a fleet in whatever order: one plan an epoch, and progress."""
from __future__ import annotations

from interleavings import run
import pytest


def test_any_interleaving_goes_well() -> None:
    run(40)


@pytest.mark.slow
def test_two_thousand_interleavings_go_well() -> None:
    run(2000)
