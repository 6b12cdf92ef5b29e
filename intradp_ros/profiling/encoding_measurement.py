# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""
What encodings do to the values of a model: measured on what example inputs lead to.

How much smaller a value gets depends on what it holds (a ReLU's zeros, a
picture's smoothness), so the example should be like what the sensor gives.
"""
from __future__ import annotations

from collections.abc import Callable
import time
from typing import TypeVar

import numpy as np
import torch

from intradp_ros.profiling.profile import CHUNK_BYTES, EncodingTiming, significant
from intradp_ros.wire.codecs.codec import Codec
from intradp_ros.wire.codecs.names import BITS
from intradp_ros.wire.codecs.patterns import Bytes
from intradp_ros.wire.codecs.registry import available, CODECS, most_elements
from intradp_ros.wire.tensors import tensor_bytes

#: How many chunks of a value are tried, each of other rows.
SAMPLES = 12
#: A transfer is taken to have an eighth of a value's rows.
PART = 8
#: Where a sample is in the bytes of its rows: everywhere, not in the order of the rows.
_PLACES = tuple(5 * k % SAMPLES / (SAMPLES - 1) for k in range(SAMPLES))
Result = TypeVar('Result')


def measure_encodings(tensor: torch.Tensor, dim: int | None = None) -> dict[str, EncodingTiming]:
    """
    Return what the encodings that can carry a value do to it, by name.

    `dim` is the dimension that its rows are cut along; None if it crosses as a whole.
    """
    raw = np.frombuffer(tensor_bytes(tensor), dtype=np.uint8)
    found: dict[str, EncodingTiming] = {}
    if not raw.size:
        return found
    for name in sorted(available()):
        codec = CODECS[name]
        if codec.takes(tensor.dtype) and _promising(codec, raw, tensor.dtype):
            found[name] = _timing(codec, _samples(codec, tensor, dim), tensor.dtype)
    return found


def _promising(codec: Codec, raw: Bytes, dtype: torch.dtype) -> bool:
    """Return whether a value can be expected to fit the next time too."""
    if codec.name == BITS and dtype is not torch.bool and _constant(raw, dtype):
        return False  # one value now: nobody knows whether there are two or more
    return codec.fits(raw, dtype)


def _constant(raw: Bytes, dtype: torch.dtype) -> bool:
    return bool((raw.reshape(-1, dtype.itemsize) == raw[:dtype.itemsize]).all())


def _samples(codec: Codec, tensor: torch.Tensor, dim: int | None) -> list[Bytes]:
    """
    Return chunks as they would be sent, from all over the value.

    Rows are cut first: a chunk of whole channels would show these few only.
    """
    size = most_elements(codec, tensor.dtype, CHUNK_BYTES) * tensor.dtype.itemsize
    found: dict[tuple[int, int], Bytes] = {}
    for k, place in enumerate(_PLACES):
        first, rows = _rows(tensor, dim, k)
        raw = np.frombuffer(tensor_bytes(rows), dtype=np.uint8)
        starts = range(0, raw.size, size)
        start = starts[round(place * (len(starts) - 1))]
        found[first, start] = raw[start:start + size]
    return list(found.values())


def _rows(tensor: torch.Tensor, dim: int | None, k: int) -> tuple[int, torch.Tensor]:
    """Return the first row of a sample's part of a value, and the part."""
    if dim is None:
        return 0, tensor
    rows = tensor.shape[dim]
    part = -(-rows // PART)
    first = round(k * (rows - part) / (SAMPLES - 1))
    return first, tensor.narrow(dim, first, part)


def _timing(codec: Codec, samples: list[Bytes], dtype: torch.dtype) -> EncodingTiming:
    """Encode and decode; what gets larger counts as plain, as it does on the wire."""
    total = sum(raw.size for raw in samples)
    encode, encoded = _fastest(lambda: [codec.encode(raw, dtype) for raw in samples])
    pairs = [(raw, data) for raw, data in zip(samples, encoded) if len(data) < raw.size]
    decode, _ = _fastest(lambda: [codec.decode(memoryview(data), raw.size, dtype)
                                  for raw, data in pairs])
    sent = total - sum(raw.size - len(data) for raw, data in pairs)
    return EncodingTiming(significant(sent / total), significant(encode / total),
                          significant(decode / total))


def _fastest(function: Callable[[], Result]) -> tuple[float, Result]:
    """Return the seconds of the fastest of three calls (after one), and what it returned."""
    result, times = function(), []
    for _ in range(3):
        start = time.perf_counter()
        function()
        times.append(time.perf_counter() - start)
    return min(times), result
