# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""Compare the results of two ways to run a model."""
from __future__ import annotations

from collections.abc import Sequence
import math
from typing import Any

import torch

TOLERANCE = {torch.float64: 1e-9, torch.float32: 1e-4, torch.complex128: 1e-9,
             torch.complex64: 1e-4, torch.float16: 2e-2, torch.bfloat16: 2e-2}
"""Largest difference, relative to a result's magnitude, that rounding explains."""


def difference(expected: Any, actual: Any) -> float:
    """
    Return the largest difference of two results, relative to the largest expected magnitude.

    It is infinite if shapes, dtypes or types differ, or where just one is
    not finite; results that are not floats must be equal.
    """
    if not isinstance(expected, torch.Tensor) or not isinstance(actual, torch.Tensor):
        same = type(expected) is type(actual) and (
            expected == actual or (expected != expected and actual != actual))
        return 0.0 if same else math.inf
    if expected.shape != actual.shape or expected.dtype != actual.dtype:
        return math.inf
    if expected.dtype not in TOLERANCE:
        return 0.0 if torch.equal(expected, actual) else math.inf
    return _float_difference(expected.detach(), actual.detach())


def explained_by_rounding(expected: Sequence[Any], actual: Sequence[Any]) -> bool:
    """Return whether two lists of results are equal but for rounding."""
    return len(expected) == len(actual) and all(
        difference(a, b) <= _tolerance(a) for a, b in zip(expected, actual))


def _tolerance(expected: Any) -> float:
    return TOLERANCE.get(expected.dtype, 0.0) if isinstance(expected, torch.Tensor) else 0.0


def _float_difference(expected: torch.Tensor, actual: torch.Tensor) -> float:
    wide = torch.complex128 if expected.is_complex() else torch.float64
    a, b = expected.to(wide), actual.to(wide)
    finite = torch.isfinite(a)
    if not torch.equal(finite, torch.isfinite(b)):
        return math.inf
    if not torch.allclose(a[~finite], b[~finite], equal_nan=True):
        return math.inf
    a, b = a[finite], b[finite]
    worst = float((a - b).abs().max()) if a.numel() else 0.0
    largest = float(a.abs().max()) if a.numel() else 0.0
    return worst / largest if largest else math.inf if worst else 0.0
