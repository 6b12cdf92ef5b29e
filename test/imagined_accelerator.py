# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""
An accelerator that needs no hardware: a device of PyTorch's with memory that nothing else reads.

What its kernels compute is computed by the CPU, on tensors that only they
can reach.  A kernel that is given tensors of the host's memory, or asked to
make some, refuses, as CUDA's do (numbers in tensors without dimensions are
taken).  So programs that run on it put everything where it belongs, and
their results can be compared.
"""
from __future__ import annotations

from collections.abc import Sequence
import time
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import library
from torch.utils import _pytree as pytree

try:
    from torch.utils.backend_registration import _setup_privateuseone_for_python_backend
except ImportError:
    _setup_privateuseone_for_python_backend = None

NAME = 'imagined'
#: Whether this version of PyTorch lets Python make a device; the lowest that is tested does not.
IS_THERE = _setup_privateuseone_for_python_backend is not None
needed = pytest.mark.skipif(not IS_THERE, reason='a PyTorch that lets Python make no device')
#: Accelerators that tests run on: a real one too, where there is one.
ACCELERATORS = (pytest.param(NAME, marks=needed),
                *(('cuda',) if torch.cuda.is_available() else ()))
_HERE, _CPU = torch.device('cpu'), 'cpu'
_ATEN = torch.ops.aten
_CROSSING = {_ATEN.copy_.default, _ATEN._to_copy.default, _ATEN.to.device, _ATEN.to.dtype_layout,
             _ATEN.to.other, _ATEN.to.dtype}
#: When the host waited for the device.
waits: list[float] = []
#: Names of the kernels that ran.
kernels: list[str] = []


class There(torch.Tensor):
    """A tensor in the accelerator's memory, which is `kept`."""

    kept: torch.Tensor
    __torch_function__ = torch._C._disabled_torch_function_impl

    @staticmethod
    def __new__(cls, kept: torch.Tensor) -> There:
        tensor: There = torch.Tensor._make_wrapper_subclass(
            cls, kept.shape, strides=kept.stride(), storage_offset=kept.storage_offset(),
            dtype=kept.dtype, device=torch.device(NAME, 0))
        tensor.kept = kept
        return tensor

    def __repr__(self) -> str:
        return f'There({self.kept})'

    @classmethod
    def __torch_dispatch__(cls, function: Any, types: Sequence[type], args: Any = (),
                           kwargs: Any = None) -> Any:
        """Run a kernel."""
        kwargs = kwargs or {}
        kernels.append(str(function))
        leaves = pytree.tree_leaves((args, kwargs))
        back = _goes_back(function, args, leaves)
        if function not in _CROSSING:
            _refuse_host(function, leaves)
        given = [t for t in leaves if isinstance(t, There)]
        known = {id(t.kept): t for t in given}
        inferring = all(t.is_inference() for t in given) and torch.is_inference_mode_enabled()

        def placed(result: Any) -> Any:
            if not isinstance(result, torch.Tensor):
                return result
            if back:
                return result.clone() if id(result) in known else result
            if id(result) in known:
                return known[id(result)]
            with torch.inference_mode(inferring):  # a view is what its base is
                return There(result)

        return pytree.tree_map(placed, function(
            *pytree.tree_map(_as_kept, args), **pytree.tree_map(_as_kept, kwargs)))


def _goes_back(function: Any, args: Any, leaves: Sequence[Any]) -> bool:
    """Return whether a call copies to the host's memory."""
    if function is _ATEN.copy_.default:
        return not isinstance(args[0], There)
    return any(isinstance(x, torch.device) and x.type == _CPU for x in leaves)


def _refuse_host(function: Any, leaves: Sequence[Any]) -> None:
    for leaf in leaves:
        if isinstance(leaf, torch.device) and leaf.type == _CPU:
            raise RuntimeError(f'{function} would make a tensor in the memory of the host')
        if isinstance(leaf, torch.Tensor) and not isinstance(leaf, There) and leaf.dim():
            raise RuntimeError(f'{function} was given a tensor {tuple(leaf.shape)} of the host')


def _as_kept(item: Any) -> Any:
    if isinstance(item, There):
        return item.kept
    return _HERE if isinstance(item, torch.device) else item


def _empty(size: Sequence[int], *, dtype: torch.dtype | None = None,
           memory_format: torch.memory_format | None = None, **_: Any) -> torch.Tensor:
    return There(torch.empty(
        tuple(size), dtype=dtype, memory_format=memory_format or torch.contiguous_format))


def _empty_strided(size: Sequence[int], stride: Sequence[int], *,
                   dtype: torch.dtype | None = None, **_: Any) -> torch.Tensor:
    return There(torch.empty_strided(tuple(size), tuple(stride), dtype=dtype))


def _copy_from(source: torch.Tensor, target: torch.Tensor, non_blocking: bool = False,
               ) -> torch.Tensor:
    _as_kept(target).copy_(_as_kept(source))
    return target


def _synchronize() -> None:
    waits.append(time.monotonic())


_KERNELS = library.Library('aten', 'IMPL')  # they last as long as this object
if IS_THERE:
    _setup_privateuseone_for_python_backend(NAME, SimpleNamespace(
        is_available=lambda: True, device_count=lambda: 1, current_device=lambda: 0,
        get_device_name=lambda device=None: 'an imagined accelerator',
        current_stream=lambda device=None: SimpleNamespace(synchronize=_synchronize),
        _is_in_bad_fork=lambda: False, manual_seed_all=lambda seed: None,
        get_amp_supported_dtype=list))
    for _name, _kernel in (('empty.memory_format', _empty), ('empty_strided', _empty_strided),
                           ('_copy_from', _copy_from)):
        _KERNELS.impl(_name, _kernel, 'PrivateUse1')
