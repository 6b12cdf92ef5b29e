# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""Where a tensor's memory begins, on whatever device it lies."""
from __future__ import annotations

import torch


def memory_address(tensor: torch.Tensor) -> int:
    """Return the address of a tensor's storage; 0 where there is none, or it cannot be seen."""
    try:
        return tensor.untyped_storage().data_ptr()
    except RuntimeError:  # sparse, or of a device that Python makes
        return 0
