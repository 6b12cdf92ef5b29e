# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""What runs the kernels of a split graph, beside the kernels themselves."""
from __future__ import annotations

from collections.abc import Sequence

import torch


class Device:
    """The device that PyTorch computes on; an emulated one does otherwise."""

    def join(self, pieces: Sequence[torch.Tensor], dim: int) -> torch.Tensor:
        """Put pieces of a value together along a dimension."""
        return torch.cat(list(pieces), dim)

    def idle_until(self, when: float) -> None:
        """Hear that there was nothing to compute until then (seconds, monotonic)."""
