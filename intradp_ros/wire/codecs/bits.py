# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""
Tensors that hold two different values, as occupancy grids and masks do: one bit each.

Which two values they are is found when a transfer is sent, by their bit
patterns (so 0.0 and -0.0 are two); a transfer with a third one does not fit.
"""
from __future__ import annotations

import numpy as np
import torch

from intradp_ros.wire.codecs.codec import Codec
from intradp_ros.wire.codecs.names import BITS
from intradp_ros.wire.codecs.patterns import Bytes, has_patterns, patterns
from intradp_ros.wire.codecs.squeeze import malformed, squeeze, unsqueeze

#: Most tensors have a third value among so many; that saves looking at all.
_FIRST_LOOK = 4096


def _others(raw: Bytes, dtype: torch.dtype) -> tuple[Bytes, Bytes] | None:
    """Return where elements differ from the first, and both values; None if there is a third."""
    elements = patterns(raw, dtype)
    differs = elements != elements[0]
    other = elements[differs.argmax()]
    if not np.array_equal(elements == other, differs) and differs.any():
        return None
    return differs.view(np.uint8), np.array([elements[0], other]).view(np.uint8)


def _fits(raw: Bytes, dtype: torch.dtype) -> bool:
    look = raw[:_FIRST_LOOK * dtype.itemsize]
    return bool(raw.size) and _others(look, dtype) is not None and _others(raw, dtype) is not None


def _encode(raw: Bytes, dtype: torch.dtype) -> bytes:
    found = _others(raw, dtype)
    if found is None:
        raise ValueError('bits are for elements of two values, these have more')
    differs, values = found
    return values.tobytes() + squeeze(np.packbits(differs))


def _decode(data: memoryview, nbytes: int, dtype: torch.dtype) -> Bytes:
    head = 2 * dtype.itemsize
    if data.nbytes < head:
        raise malformed(f'{data.nbytes} bytes do not hold two values')
    values = patterns(np.frombuffer(data[:head], np.uint8), dtype)
    count = nbytes // dtype.itemsize
    differs = np.unpackbits(unsqueeze(data[head:], -(-count // 8)), count=count)
    return values[differs].view(np.uint8)


bits = Codec(BITS, 'zstandard', has_patterns, _encode, _decode, _fits, bits=1.0)
