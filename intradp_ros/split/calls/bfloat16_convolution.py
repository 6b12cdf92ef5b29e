# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""
Convolutions in bfloat16 on processors, in single precision where oneDNN would get them wrong.

oneDNN 3.12 (torch 2.13) reads memory that nobody wrote where a processor has
AMX, the result has a last dimension of 1, and the stride there is above 1;
of some volumes as well.  Whole networks hardly have such shapes, but few rows
of their layers do.
"""
from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

_CONVOLUTIONS = {torch.ops.aten.conv1d.default, torch.ops.aten.conv2d.default,
                 torch.ops.aten.conv3d.default, torch.ops.aten.conv1d.padding,
                 torch.ops.aten.conv2d.padding, torch.ops.aten.conv3d.padding,
                 torch.ops.aten.convolution.default}
_VOLUME = 5  # dimensions


def without_errors(function: Any, weight: Any) -> Callable[..., Any]:
    """Return a function that calls another, or itself if that is not such a convolution."""
    if function not in _CONVOLUTIONS or not isinstance(weight, torch.Tensor) \
            or weight.dtype != torch.bfloat16 or weight.device.type != 'cpu':
        return function  # type: ignore[no-any-return]

    def convolve(*args: Any, **kwargs: Any) -> torch.Tensor:
        if args[0].dim() < _VOLUME:
            result: torch.Tensor = function(*args, **kwargs)
            if result.shape[-1] != 1:
                return result
        exact: torch.Tensor = function(
            *map(_single, args), **{name: _single(a) for name, a in kwargs.items()})
        return exact.to(torch.bfloat16)

    return convolve


def _single(argument: Any) -> Any:
    return argument.float() if isinstance(argument, torch.Tensor) else argument
