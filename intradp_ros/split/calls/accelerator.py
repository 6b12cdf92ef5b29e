# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""
Devices of PyTorch with memory of their own, such as ``cuda``.

Rows cross the link from and to the host's memory: they are copied to the
device when they have come, and back when they are sent.
"""
from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from intradp_ros.split.calls.cuda_graphs import graphs_on
from intradp_ros.split.kernel_device import HOST, KernelDevice

#: Leaves the choice to `open_device`.
AUTO = 'auto'


class DeviceError(ValueError):
    """A device that cannot be used; the text says why and how to fix it."""


class Accelerator(KernelDevice):
    """
    A device of PyTorch with memory of its own.

    :raises DeviceError: if this build of PyTorch or this machine has none of that name.
    """

    runs_ahead = True

    def __init__(self, name: str) -> None:
        try:
            self.where = torch.zeros(1, device=name).device
            self._module: Any = torch.get_device_module(self.where)
            hardware = self._module.get_device_name(self.where)
        except (RuntimeError, AssertionError, AttributeError) as error:
            cause = str(error).strip().partition('\n')[0]
            raise DeviceError(f'no device {name!r} to compute on ({cause}): install a build of '
                              f'PyTorch for it, or take {HOST.name!r}') from error
        self.name, self.hardware = str(self.where), f'{hardware} ({self.where.type})'
        self.replays = self.where.type == 'cuda'
        # Convolutions in TF32 keep 10 bits: more than rounding would be lost.
        torch.backends.cudnn.allow_tf32 = torch.backends.cuda.matmul.allow_tf32 = False

    def take(self, tensor: torch.Tensor) -> torch.Tensor:
        """Return a copy of a tensor in the device's memory, or itself if it is there."""
        return tensor.to(self.where)

    def give(self, tensor: torch.Tensor) -> torch.Tensor:
        """Return a copy in the host's memory of what a kernel made, once it is done."""
        return tensor.cpu()

    def finish(self) -> None:
        """Wait until all that kernels have begun is done."""
        # Not for the whole device: while a thread records calls, that would fail.
        self._module.current_stream(self.where).synchronize()

    def replayed(self, kernel: Callable[[Sequence[torch.Tensor]], Any],
                 inputs: Sequence[torch.Tensor],
                 ) -> Callable[[Sequence[torch.Tensor]], Any] | None:
        """Return what replays a kernel's calls as one graph of CUDA's, if that is faster."""
        return graphs_on(self.where).faster(kernel, inputs) if self.replays else None


def open_device(name: str) -> KernelDevice:
    """
    Return the device of PyTorch's name for it: ``cpu``, ``cuda``, ``cuda:1``.

    ``auto`` is ``cuda`` where there is one, else ``cpu``.

    :raises DeviceError: if there is none.
    """
    if name == AUTO:
        name = 'cuda' if torch.cuda.is_available() else HOST.name
    return HOST if name == HOST.name else Accelerator(name)
