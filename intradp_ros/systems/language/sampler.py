# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""Drawing a token: by request and position, so that a restart draws the same again."""
from __future__ import annotations

import torch
from torch import Tensor

from intradp_ros.runtime.requests.text_requests import Sampling

_MIX, _BITS = 0x9E3779B97F4A7C15, (1 << 64) - 1


def draw(logits: Tensor, sampling: Sampling, position: int, allowed: Tensor | None = None) -> int:
    """
    Return a token for logits (vocabulary, float32).

    `allowed` (vocabulary, bool) are the tokens that a grammar allows.  At temperature 0 the
    likeliest is taken, the first of equals.
    """
    if allowed is not None:
        logits = logits.masked_fill(~allowed, -torch.inf)
    if not sampling.temperature:
        return int(logits.argmax())
    logits = logits / sampling.temperature
    order = torch.argsort(logits, descending=True, stable=True)
    if sampling.top_k:
        order = order[:sampling.top_k]
    chances = torch.softmax(logits[order].double(), 0)
    if sampling.top_p < 1:
        before = chances.cumsum(0) - chances
        chances = torch.where(before < sampling.top_p, chances, 0.0)
    source = torch.Generator().manual_seed(
        (sampling.seed + (position + 1) * _MIX & _BITS) >> 1)
    point = torch.rand((), generator=source, dtype=torch.float64) * chances.sum()
    place = int(torch.searchsorted(chances.cumsum(0), point, right=True))
    return int(order[min(place, len(order) - 1)])
