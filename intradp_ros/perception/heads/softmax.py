# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""Shares from logits."""
from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]


def softmax(logits: Array) -> Array:
    """Return shares that add up to one along the last dimension."""
    powers = np.exp(logits - logits.max(-1, keepdims=True))
    shares: Array = powers / powers.sum(-1, keepdims=True)
    return shares
