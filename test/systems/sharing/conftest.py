# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""A small network that tests of sessions share, and what it makes of `sharing.SOURCE`."""
from __future__ import annotations

import pytest
from sharing import SOURCE
from small_models import seeded, UNet
import torch

from intradp_ros.runtime.models.model import share_module, SharedModel


@pytest.fixture(scope='module')
def model() -> SharedModel:
    return share_module(seeded(UNet, 32, 48), (SOURCE,))


@pytest.fixture(scope='module')
def wanted() -> torch.Tensor:
    with torch.no_grad():
        return seeded(UNet, 32, 48)(SOURCE)
