# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""What runs the kernels of a split graph, apart from the kernels themselves."""
from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch


class KernelDevice:
    """
    The processor that PyTorch computes on; accelerators and emulated devices do otherwise.

    `name` is PyTorch's, `hardware` the model of an accelerator; `runs_ahead`
    says that a kernel returns before its work is done, and `replays` that
    calls can be `replayed`.
    """

    name = 'cpu'
    hardware = ''
    runs_ahead = False
    replays = False

    def join(self, pieces: Sequence[torch.Tensor], dim: int) -> torch.Tensor:
        """Put pieces of a value together along a dimension."""
        return torch.cat(list(pieces), dim)

    def take(self, tensor: torch.Tensor) -> torch.Tensor:
        """Return a tensor of the host's memory where kernels can read it."""
        return tensor

    def give(self, tensor: torch.Tensor) -> torch.Tensor:
        """Return what a kernel made, in the host's memory, once it is done."""
        return tensor

    def finish(self) -> None:
        """Wait until all that kernels have begun is done."""

    def replayed(self, kernel: Callable[[Sequence[torch.Tensor]], Any],
                 inputs: Sequence[torch.Tensor],
                 ) -> Callable[[Sequence[torch.Tensor]], Any] | None:
        """Return what does a kernel's work sooner for inputs of these shapes; None: nothing."""
        return None

    def idle_until(self, when: float) -> None:
        """Hear that there was nothing to compute until then (seconds, monotonic)."""


HOST = KernelDevice()
