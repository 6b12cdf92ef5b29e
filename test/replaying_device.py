# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""The processor as a device that replays calls, as CUDA graphs do."""
from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import torch

from intradp_ros.runtime.models.model import SharedModel
from intradp_ros.split.kernel_device import KernelDevice

Inputs = Sequence[torch.Tensor]


class Replayed:
    """As a CUDA graph does it: what is given is copied, and so is what is returned."""

    def __init__(self, kernel: Callable[[Inputs], Any], inputs: Inputs) -> None:
        self.kernel, self.kinds, self.calls = kernel, _kinds(inputs), 0

    def __call__(self, tensors: Inputs) -> tuple[torch.Tensor, ...]:
        assert _kinds(tensors) == self.kinds
        self.calls += 1
        return tuple(t.clone() for t in self.kernel([t.clone() for t in tensors]))


def _kinds(tensors: Inputs) -> list[tuple[torch.Size, torch.dtype]]:
    return [(t.shape, t.dtype) for t in tensors]


class Replaying(KernelDevice):
    """The processor, as a device that replays every other segment."""

    runs_ahead = replays = True

    def __init__(self) -> None:
        self.asked: list[Replayed | None] = []

    def replayed(self, kernel: Callable[[Inputs], Any], inputs: Inputs) -> Replayed | None:
        self.asked.append(Replayed(kernel, inputs) if len(self.asked) % 2 == 0 else None)
        return self.asked[-1]

    @property
    def calls(self) -> int:
        """How often something was replayed."""
        return sum(kernel.calls for kernel in self.asked if kernel)


def replaying(model: SharedModel) -> tuple[SharedModel, Replaying]:
    """Return a model on such a device, and that."""
    device = Replaying()
    return replace(model, split=replace(model.split, device=device)), device
