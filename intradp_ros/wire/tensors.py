# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""Tensors as bytes in row-major order, and back; both without a copy where that is possible."""
from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

import torch

from intradp_ros.wire.frames import MalformedFrameError


def tensor_bytes(tensor: torch.Tensor) -> memoryview:
    """
    Return a tensor's elements as bytes in row-major order.

    A dense row-major tensor in the CPU's memory is not copied: the view
    shares its memory, so leave the tensor unchanged while the view is in
    use.  Any other tensor (strided, on a device) is copied once.
    """
    plain = tensor.detach().cpu().resolve_conj().resolve_neg().contiguous()
    flat = plain.as_strided((plain.numel(),), (1,))  # a dimension of one row has any stride
    return flat.view(torch.uint8).numpy().data


def tensor_from_bytes(data: Any, dtype: torch.dtype, shape: Sequence[int]) -> torch.Tensor:
    """
    Return a tensor over bytes in row-major order.

    The tensor shares the memory of a writable buffer (bytearray, array,
    NumPy array); a read-only one (bytes) is copied, for tensors are writable.

    :raises MalformedFrameError: if the buffer's size is not that of the shape.
    """
    view = memoryview(data).cast('B')
    count = prod(shape)
    if min(shape, default=0) < 0 or view.nbytes != count * dtype.itemsize:
        raise MalformedFrameError(
            f'{view.nbytes} bytes are no {dtype} tensor of shape {tuple(shape)}', 'size')
    if count == 0:
        return torch.empty(tuple(shape), dtype=dtype)
    buffer = bytearray(view) if view.readonly else view
    return torch.frombuffer(buffer, dtype=dtype, count=count).view(tuple(shape))
