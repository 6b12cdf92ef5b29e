# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""Small wrappers around kernels: padding before, cropping and scaling after."""
from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from intradp_ros.split.local_operator import Kernel


def padded(
        kernel: Kernel, pads: Sequence[tuple[int, int]], value: float = 0.0) -> Kernel:
    """
    Pad the first input with a constant before calling `kernel`.

    `pads` has rows before and after for each of the last dimensions, in order.
    """
    flat = [rows for pair in reversed(pads) for rows in pair]
    if not any(flat):
        return kernel
    return lambda x: kernel((torch.constant_pad_nd(x[0], flat, value), *x[1:]))


def cropped(kernel: Kernel, dim: int, start: int, rows: int, produced: int) -> Kernel:
    """Keep `rows` rows from `start` on of the `produced` ones, along `dim`."""
    if start == 0 and rows == produced:
        return kernel
    return lambda x: kernel(x).narrow(dim, start, rows)


def kept(kernel: Kernel, dim: int, start: int, rows: int) -> Kernel:
    """Keep `rows` rows from `start` on of every result, along `dim`."""
    def narrowed(x: Sequence[torch.Tensor]) -> Any:
        results = kernel(x)
        if isinstance(results, torch.Tensor):
            return results.narrow(dim, start, rows)
        return tuple(result.narrow(dim, start, rows) for result in results)

    return narrowed


def unread(kernel: Kernel, nothing: torch.Tensor) -> Kernel:
    """Give `kernel` a tensor without rows instead of a first input that is not needed."""
    return lambda x: kernel((nothing, *x[1:]))


def scaled(kernel: Kernel, factors: Sequence[float], trailing: int, dtype: torch.dtype) -> Kernel:
    """Multiply each row by its factor; `trailing` dimensions follow the split dimension."""
    if all(factor == 1.0 for factor in factors):
        return kernel
    column = torch.tensor(factors, dtype=dtype).view(len(factors), *[1] * trailing)
    return lambda x: kernel(x) * column
