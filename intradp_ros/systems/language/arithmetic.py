# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""
What devices compute with: the compiled kernels, torch, or an accelerator.

Members announce it.  The compiled kernels promise bits; plans of devices of which one has
others say so, and tokens are not drafted with them.  What torch needs in addition to a plan's
blocks, keys and values follows from it.
"""
from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import suppress

import torch

from intradp_ros.split.kernel_device import HOST, KernelDevice
from intradp_ros.systems.language.kernels import EXPANDED, kernels
from intradp_ros.systems.language.manifest import COMPUTED, Manifest

COMPILED, TORCH = 'compiled', 'torch'
#: What is said of an accelerator that shares the memory of the host.
UNIFIED = ' (unified)'
#: Share of an accelerator's free memory that plans may use, where no limit is set.
_USED = 0.9


def arithmetic_of(device: KernelDevice) -> str:
    """Return what computes on a device here: `COMPILED`, `TORCH`, or torch's name for it."""
    if device is HOST:
        return COMPILED if kernels().library else TORCH
    kind = torch.device(device.name).type
    with suppress(AttributeError, RuntimeError, AssertionError):
        if torch.get_device_module(kind).get_device_properties(device.name).is_integrated:
            return kind + UNIFIED
    return kind


def free_bytes(device: KernelDevice) -> int:
    """Return the bytes of an accelerator that plans may use; 0 where it does not say."""
    with suppress(AttributeError, RuntimeError, AssertionError):
        return int(_USED * torch.get_device_module(device.name).mem_get_info(device.name)[0])
    return 0


def extra_bytes(manifest: Manifest, arithmetic: str) -> int:
    """
    Return the bytes that computing takes in addition to what a plan holds.

    Torch makes floats of some rows of a stored matrix.  What an accelerator holds is read
    through memory of the host, which counts where both are the same.
    """
    if arithmetic == COMPILED:
        return 0
    floats = max((min(EXPANDED, t.shape[-1] * t.shape[-2] * COMPUTED.itemsize)
                  for file in (*manifest.blocks, manifest.embedding, manifest.head)
                  for t in file.tensors if len(t.shape) > 1 and t.type.dtype != COMPUTED),
                 default=0)
    return floats + arithmetic.endswith(UNIFIED) * max(
        block.nbytes for block in (*manifest.blocks, manifest.embedding, manifest.head))


def bits_line(names: Iterable[str], arithmetic: Mapping[str, str]) -> str:
    """Return the line that says that bits are not promised, and why; '' where they are."""
    others = {name: arithmetic[name] for name in names
              if arithmetic.get(name, COMPILED) != COMPILED}
    said = ', '.join(f'{name} computes by {how}' for name, how in others.items())
    return said and f'{said}: tokens are those of the library, but logits have not the same ' \
        'bits in any batch and plan, and tokens are not drafted'
