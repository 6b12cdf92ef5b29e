# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""Elements of any dtype as whole numbers of the same size: their bit patterns."""
from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import torch

Bytes = npt.NDArray[np.uint8]
Patterns = npt.NDArray[Any]
_UNSIGNED = {1: np.uint8, 2: np.uint16, 4: np.uint32, 8: np.uint64}


def has_patterns(dtype: torch.dtype) -> bool:
    """Return whether elements are as large as some whole number (complex128 is larger)."""
    return dtype.itemsize in _UNSIGNED


def patterns(raw: Bytes, dtype: torch.dtype) -> Patterns:
    """Return a view of an array of bytes, one whole number for each element."""
    return raw.view(_UNSIGNED[dtype.itemsize])
