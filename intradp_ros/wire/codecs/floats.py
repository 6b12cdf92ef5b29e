# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""
Floating point activations: what is zero, the exponents, and the rest as it is.

Much of what a ReLU gives is zero, and the exponents of the other elements are
alike; their mantissas are noise that no compressor makes smaller.  So there
is a mask of what is not zero, and of the elements that are not, the byte with
the exponent; both are squeezed.  Their other bytes are left alone.  On
activations this is smaller than byte-shuffled zstd, and faster.
"""
from __future__ import annotations

import struct

import numpy as np
import torch

from intradp_ros.wire.codecs.codec import Codec
from intradp_ros.wire.codecs.names import FLOATS
from intradp_ros.wire.codecs.patterns import Bytes, Patterns, patterns
from intradp_ros.wire.codecs.squeeze import malformed, squeeze, unsqueeze

#: Elements that are not zero; bytes of the squeezed mask (none if all are), of the exponents.
_HEAD = struct.Struct('<III')


def _takes(dtype: torch.dtype) -> bool:
    return dtype in (torch.float32, torch.float16, torch.bfloat16)


def encode_floats(raw: Bytes, dtype: torch.dtype) -> bytes:
    """Return the elements encoded."""
    elements = patterns(raw, dtype)
    there = elements != 0
    mask = b'' if there.all() else squeeze(np.packbits(there))
    kept = elements[there] if mask else elements
    top, *rest = _planes(kept)
    exponents = squeeze(top)
    head = _HEAD.pack(kept.size, len(mask), len(exponents))
    return b''.join((head, mask, exponents, *(plane.data for plane in rest)))


def decode_floats(data: memoryview, nbytes: int, dtype: torch.dtype) -> Bytes:
    """Return the bytes of what was encoded; MalformedFrameError if that is not what it says."""
    count = nbytes // dtype.itemsize
    kept, mask, exponents, rest = _sections(data, count, dtype.itemsize)
    values = _joined(unsqueeze(exponents, kept), np.frombuffer(rest, np.uint8), dtype)
    if not mask.nbytes and kept == count:
        return values.view(np.uint8)
    there = np.unpackbits(unsqueeze(mask, -(-count // 8)), count=count).view(np.bool_)
    if np.count_nonzero(there) != kept:
        raise malformed(f'a mask that is not of {kept} elements')
    elements = np.zeros(count, values.dtype)
    elements[there] = values
    return elements.view(np.uint8)


def _sections(data: memoryview, count: int, itemsize: int,
              ) -> tuple[int, memoryview, memoryview, memoryview]:
    """Return how many elements are not zero, and the three parts."""
    if data.nbytes < _HEAD.size:
        raise malformed(f'{data.nbytes} bytes are not floats')
    kept, first, second = _HEAD.unpack_from(data)
    mask, body = data[_HEAD.size:_HEAD.size + first], data[_HEAD.size + first:]
    exponents, rest = body[:second], body[second:]
    if kept > count or rest.nbytes != kept * (itemsize - 1):
        raise malformed(f'{rest.nbytes} bytes of mantissas of {kept} elements, {count} expected')
    return kept, mask, exponents, rest


def _planes(elements: Patterns) -> tuple[Bytes | Patterns, ...]:
    """Return the byte with the exponent, and the bytes with the rest (the sign comes last)."""
    kind = elements.dtype.type
    width = 8 * elements.itemsize
    turned = (elements << kind(1)) | (elements >> kind(width - 1))
    top = (turned >> kind(width - 8)).astype(np.uint8)
    if width == 16:
        return top, turned.astype(np.uint8)
    return top, turned.astype(np.uint16), (turned >> kind(16)).astype(np.uint8)


def _joined(top: Bytes, rest: Bytes, dtype: torch.dtype) -> Patterns:
    """Put together what `_planes` took apart."""
    empty = patterns(np.empty(0, np.uint8), dtype)
    kind, width = empty.dtype.type, 8 * empty.itemsize
    turned = top.astype(kind) << kind(width - 8)
    if width == 16:
        turned |= rest
    else:
        turned |= rest[:2 * top.size].view(np.uint16)
        turned |= rest[2 * top.size:].astype(kind) << kind(16)
    joined: Patterns = (turned >> kind(1)) | (turned << kind(width - 1))
    return joined


floats = Codec(FLOATS, 'zstandard', _takes, encode_floats, decode_floats)
