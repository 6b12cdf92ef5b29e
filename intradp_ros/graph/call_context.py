# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""What around a call decides what PyTorch computes: precision, devices, and who looks on."""
from __future__ import annotations

from typing import Any

import torch
from torch.autograd import forward_ad
from torch.overrides import _get_current_function_mode_stack
from torch.utils._device import DeviceContext

Context = tuple[Any, ...]


def call_context() -> Context:
    """Return what settings of PyTorch a result may depend on, as they are for this call."""
    amp = tuple(torch.get_autocast_dtype(kind) if torch.is_autocast_enabled(kind) else None
                for kind in _AMP)
    device = torch.get_default_device() if torch._C._len_torch_function_stack() else None
    return (amp, torch.get_default_dtype(), device,
            torch.are_deterministic_algorithms_enabled(), torch.get_float32_matmul_precision(),
            torch.backends.mkldnn.enabled)


_AMP = ('cpu', 'cuda') if torch.cuda.is_available() else ('cpu',)
CONTEXT = ('autocast', 'the default dtype', 'the default device', 'deterministic algorithms',
           'the precision of products', 'the use of oneDNN')
"""Names of what a context consists of, in order."""


def is_watched() -> bool:
    """
    Return whether somebody watches each operator of this call: a trace, an export, a transform.

    Anyone who does must see the model's own operators.
    """
    if torch._C._get_tracing_state() is not None or torch._C._len_torch_dispatch_stack():
        return True
    if torch._C._functorch.peek_interpreter_stack() is not None:
        return True
    if torch._C._len_torch_function_stack():
        return not all(isinstance(mode, DeviceContext)
                       for mode in _get_current_function_mode_stack())  # type: ignore
    return forward_ad._current_level >= 0


def is_mere_tensor(item: Any) -> bool:
    """
    Return whether something is a tensor and no more: PyTorch's own, or the one of a backend.

    A backend that is written in Python has a class for what is in its memory; unlike other
    subclasses it sees operators only, not functions.
    """
    return type(item) is torch.Tensor or (
        isinstance(item, torch.Tensor)
        and item.device.type == torch._C._get_privateuse1_backend_name()
        and type(item).__torch_function__ is torch._C._disabled_torch_function_impl)


def is_plain(item: Any) -> bool:
    """Return whether an argument is a tensor of PyTorch's own that lies densely in memory."""
    return (is_mere_tensor(item) and item.layout == torch.strided
            and not item.is_quantized and not item.is_conj() and not item.is_neg()
            and item.device.type != 'meta')
