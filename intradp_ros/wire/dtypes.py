# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""Dtypes on the wire: the type codes and bit widths of DLPack."""
from __future__ import annotations

import torch

from intradp_ros.wire.frames import MalformedFrameError

INT, UINT, FLOAT, BFLOAT, COMPLEX, BOOL = 0, 1, 2, 4, 5, 6

_TO_WIRE: dict[torch.dtype, tuple[int, int]] = {
    torch.int8: (INT, 8),
    torch.int16: (INT, 16),
    torch.int32: (INT, 32),
    torch.int64: (INT, 64),
    torch.uint8: (UINT, 8),
    torch.uint16: (UINT, 16),
    torch.uint32: (UINT, 32),
    torch.uint64: (UINT, 64),
    torch.float16: (FLOAT, 16),
    torch.float32: (FLOAT, 32),
    torch.float64: (FLOAT, 64),
    torch.bfloat16: (BFLOAT, 16),
    torch.complex64: (COMPLEX, 64),
    torch.complex128: (COMPLEX, 128),
    torch.bool: (BOOL, 8),
}
_FROM_WIRE = {wire: dtype for dtype, wire in _TO_WIRE.items()}


def encode_dtype(dtype: torch.dtype) -> tuple[int, int]:
    """
    Return DLPack's type code and the bits of one element.

    :raises ValueError: if the dtype cannot cross the link (quantised and 8-bit float dtypes).
    """
    if dtype not in _TO_WIRE:
        raise ValueError(f'{dtype} cannot cross the link; convert the value to one of: '
                         + ', '.join(str(d).removeprefix('torch.') for d in _TO_WIRE))
    return _TO_WIRE[dtype]


def decode_dtype(code: int, bits: int) -> torch.dtype:
    """
    Return the dtype of DLPack's type code and bits.

    :raises MalformedFrameError: if there is no such dtype.
    """
    dtype = _FROM_WIRE.get((code, bits))
    if dtype is None:
        raise MalformedFrameError(f'no dtype has DLPack code {code} with {bits} bits', 'dtype')
    return dtype
