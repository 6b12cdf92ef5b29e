# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""
Profiles on disk, found again by model digest, split axis, device and example inputs.

What other code has measured or planned is not found: another release may have
other operators in another order, and would take its times for theirs.
"""
from __future__ import annotations

from collections.abc import Callable, Sequence
import hashlib
from pathlib import Path

import torch

from intradp_ros.core.measured_once import measured_once, measured_path
from intradp_ros.profiling.machine import device_name
from intradp_ros.profiling.profile import Profile
from intradp_ros.split.kernel_device import HOST, KernelDevice
from intradp_ros.wire.tensors import tensor_bytes

#: Packages that decide what a profile says.
_MEASURING = ('graph', 'profiling', 'split', 'wire')


def example_key(inputs: Sequence[torch.Tensor]) -> str:
    """Name example inputs: what encodings do to values depends on them."""
    content = hashlib.sha256()
    for tensor in inputs:
        content.update(tensor_bytes(tensor))
    return content.hexdigest()[:8]


def cache_path(digest: str, axis: int, folder: Path | None = None, example: str = '',
               device: KernelDevice = HOST) -> Path:
    """Return the file of a profile measured on a device, with these example inputs."""
    return measured_path('operators', digest, axis, device_name(device), example,
                         packages=_MEASURING, folder=folder)


def cached_profile(digest: str, axis: int, measure: Callable[[], Profile],
                   folder: Path | None = None, example: str = '',
                   device: KernelDevice = HOST) -> Profile:
    """
    Return the profile of this model on a device, measuring it only the first time.

    It is measured again for another `example` (from `example_key`), if given.
    """
    return measured_once(cache_path(digest, axis, folder, example, device), measure,
                         Profile.from_json, Profile.to_json)
