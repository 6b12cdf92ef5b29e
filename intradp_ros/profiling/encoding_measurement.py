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

#: How many chunks of a value are tried.
SAMPLES = 6
Result = TypeVar('Result')


def measure_encodings(tensor: torch.Tensor) -> dict[str, EncodingTiming]:
    """Return what the encodings that can carry a value do to it, by name."""
    raw = np.frombuffer(tensor_bytes(tensor), dtype=np.uint8)
    found: dict[str, EncodingTiming] = {}
    if not raw.size:
        return found
    for name in sorted(available()):
        codec = CODECS[name]
        if codec.takes(tensor.dtype) and _promising(codec, raw, tensor.dtype):
            found[name] = _timing(codec, _samples(codec, raw, tensor.dtype), tensor.dtype)
    return found


def _promising(codec: Codec, raw: Bytes, dtype: torch.dtype) -> bool:
    """Tell whether a value can be expected to fit the next time too."""
    if codec.name == BITS and dtype is not torch.bool and _constant(raw, dtype):
        return False  # one value now: nobody knows whether there are two or more
    return codec.fits(raw, dtype)


def _constant(raw: Bytes, dtype: torch.dtype) -> bool:
    return bool((raw.reshape(-1, dtype.itemsize) == raw[:dtype.itemsize]).all())


def _samples(codec: Codec, raw: Bytes, dtype: torch.dtype) -> list[Bytes]:
    """Return chunks from all over the value."""
    size = most_elements(codec, dtype, CHUNK_BYTES) * dtype.itemsize
    starts = range(0, raw.size, size)
    chosen = {starts[round(k * (len(starts) - 1) / (SAMPLES - 1))] for k in range(SAMPLES)}
    return [raw[start:start + size] for start in sorted(chosen)]


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
