# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""
Encodings that lose precision: half floats, and 8 bits between the extremes of a chunk.

Never used unless the user asks for one, and then the effect on the output is
measured and reported.  What is not finite, or too large for half floats, crosses
plain.
"""
from __future__ import annotations

import struct

import numpy as np
import numpy.typing as npt
import torch

from intradp_ros.wire.codecs.codec import Codec
from intradp_ros.wire.codecs.floats import decode_floats, encode_floats
from intradp_ros.wire.codecs.names import FP16, INT8
from intradp_ros.wire.codecs.patterns import Bytes
from intradp_ros.wire.codecs.squeeze import malformed, squeeze, unsqueeze

_LARGEST_HALF = 65504.0
_STEPS = 255
#: The smallest element, and the size of a step.
_HEAD = struct.Struct('<dd')


def _takes(dtype: torch.dtype) -> bool:
    return dtype is torch.float32


def _numbers(raw: Bytes) -> npt.NDArray[np.float32]:
    return raw.view(np.float32)


def _half_fits(raw: Bytes, dtype: torch.dtype) -> bool:
    return bool((np.abs(_numbers(raw)) <= _LARGEST_HALF).all())


def _encode_half(raw: Bytes, dtype: torch.dtype) -> bytes:
    return encode_floats(_numbers(raw).astype(np.float16).view(np.uint8), torch.float16)


def _decode_half(data: memoryview, nbytes: int, dtype: torch.dtype) -> Bytes:
    halves = decode_floats(data, nbytes // 2, torch.float16)
    return halves.view(np.float16).astype(np.float32).view(np.uint8)


def _int8_fits(raw: Bytes, dtype: torch.dtype) -> bool:
    return bool(np.isfinite(_numbers(raw)).all())


def _encode_int8(raw: Bytes, dtype: torch.dtype) -> bytes:
    numbers = _numbers(raw).astype(np.float64)
    low = float(numbers.min())
    step = (float(numbers.max()) - low) / _STEPS
    levels = np.rint((numbers - low) / (step or 1.0)).astype(np.uint8)
    return _HEAD.pack(low, step) + squeeze(levels)


def _decode_int8(data: memoryview, nbytes: int, dtype: torch.dtype) -> Bytes:
    if data.nbytes < _HEAD.size:
        raise malformed(f'{data.nbytes} bytes are not levels')
    low, step = _HEAD.unpack_from(data)
    if not (np.isfinite(low) and np.isfinite(step)):
        raise malformed(f'levels from {low} by {step}')
    levels = unsqueeze(data[_HEAD.size:], nbytes // 4)
    with np.errstate(over='ignore'):  # what a sender of this package sends does not overflow
        numbers: npt.NDArray[np.float32] = (levels * step + low).astype(np.float32)
    return numbers.view(np.uint8)


half = Codec(FP16, 'zstandard', _takes, _encode_half, _decode_half, _half_fits, bits=17.0)
eight_bits = Codec(INT8, 'zstandard', _takes, _encode_int8, _decode_int8, _int8_fits, bits=8.0)
