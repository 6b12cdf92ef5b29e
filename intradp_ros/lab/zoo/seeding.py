# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""Random weights that are the same in every process, so that two sides have the same model."""
from __future__ import annotations

from collections.abc import Callable
from functools import wraps

import torch
from torch import nn

Factory = Callable[[], nn.Module]


def seeded(factory: Factory) -> Factory:
    """Let a factory draw the same weights each time, whatever was drawn before."""
    @wraps(factory)
    def same() -> nn.Module:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            return factory()

    return same
