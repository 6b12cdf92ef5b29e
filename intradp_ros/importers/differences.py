# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""How far two results lie apart, also where they are not finite."""
from __future__ import annotations

import torch


def apart(wanted: torch.Tensor, got: torch.Tensor) -> float:
    """
    Return the greatest difference by the spread of the finite elements; infinity for other shapes.

    The same infinity, or no number in both, is not a difference; in one of them it is an infinite
    one.  Where nothing is spread (a constant), by 1.
    """
    if wanted.shape != got.shape:
        return float('inf')
    if not wanted.numel():
        return 0.0
    ours, theirs = (x.detach().cpu().to(torch.float64) for x in (got, wanted))
    same = (ours == theirs) | (ours.isnan() & theirs.isnan())
    finite = ours.isfinite() & theirs.isfinite()
    if not bool((same | finite).all()):
        return float('inf')
    if not bool(finite.any()):
        return 0.0
    spread = (theirs[finite].max() - theirs[finite].min()).item() or 1.0
    return (ours[finite] - theirs[finite]).abs().max().item() / spread
