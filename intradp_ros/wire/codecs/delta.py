# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""
Pictures, depths and labels: differences of neighbours, squeezed.

Neighbours in a row are alike, so their differences are small numbers.  They
wrap around, which makes the sum exact again.  On photographs this is as small
as PNG.
"""
from __future__ import annotations

import numpy as np
import torch

from intradp_ros.wire.codecs.codec import Codec
from intradp_ros.wire.codecs.names import DELTA
from intradp_ros.wire.codecs.patterns import Bytes, patterns
from intradp_ros.wire.codecs.squeeze import squeeze, unsqueeze


def _takes(dtype: torch.dtype) -> bool:
    return not (dtype.is_floating_point or dtype.is_complex or dtype is torch.bool)


def _encode(raw: Bytes, dtype: torch.dtype) -> bytes:
    elements = patterns(raw, dtype)
    steps = elements.copy()
    steps[1:] -= elements[:-1]
    planes = steps.view(np.uint8).reshape(-1, dtype.itemsize).T
    return squeeze(np.ascontiguousarray(planes).reshape(-1))


def _decode(data: memoryview, nbytes: int, dtype: torch.dtype) -> Bytes:
    planes = unsqueeze(data, nbytes).reshape(dtype.itemsize, -1)
    steps = patterns(np.ascontiguousarray(planes.T).reshape(-1), dtype)
    return np.add.accumulate(steps, dtype=steps.dtype).view(np.uint8)


delta = Codec(DELTA, 'zstandard', _takes, _encode, _decode)
