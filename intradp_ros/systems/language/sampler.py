# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""
Drawing a token: by request and position, so that a restart draws the same again.

Only the likeliest tokens are sorted, as many as `top_k` and `top_p` ask for: a vocabulary of
262,000 tokens would take longer to sort than to compute.
"""
from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
import math

import torch
from torch import Tensor

from intradp_ros.runtime.requests.text_requests import Sampling

_MIX, _BITS = 0x9E3779B97F4A7C15, (1 << 64) - 1
#: Classes of chances, each so many times less than the one before, by which some are sorted out.
_CLASSES, _STEP = 4096, 1 / 64


def adjusted(logits: Tensor, sampling: Sampling, tokens: Sequence[int], prompt: int) -> Tensor:
    """
    Return logits (vocabulary, float32) after the biases and penalties of a request, in this order.

    Its `tokens`, of which the first are the `prompt`, are penalised for being there: by
    `repetition_penalty` all of them, as `transformers` does, by the others those of the answer.
    """
    if sampling.logit_bias:
        biased, biases = zip(*sampling.logit_bias)
        logits = logits.index_add(0, torch.tensor(biased), torch.tensor(
            biases, dtype=logits.dtype))
    penalty = sampling.repetition_penalty
    if penalty not in (None, 1.0):
        there = torch.tensor(list({*tokens}))
        had = logits[there]
        logits = logits.index_copy(0, there, torch.where(had < 0, had * penalty, had / penalty))
    if (sampling.presence_penalty or sampling.frequency_penalty) and len(tokens) > prompt:
        counts = Counter(tokens[prompt:])
        logits = logits.index_add(0, torch.tensor(list(counts)), -torch.tensor(
            [sampling.presence_penalty + sampling.frequency_penalty * count
             for count in counts.values()], dtype=logits.dtype))
    return logits


def draw(logits: Tensor, sampling: Sampling, position: int, allowed: Tensor | None = None) -> int:
    """
    Return a token for logits (vocabulary, float32).

    `allowed` (vocabulary, bool) are the tokens that may be drawn.  At temperature 0 the
    likeliest is taken, the first of equals.

    :raises ValueError: if a logit is not a number, or no token is allowed.
    """
    if allowed is not None:
        logits = logits.masked_fill(~allowed, -math.inf)
    # of NaN and other numbers it is NaN; threads that torch would wake for it go on spinning
    best = int(logits.numpy().argmax())
    top = float(logits[best])
    if not top > -math.inf:
        raise ValueError('logits that are not numbers' if math.isnan(top) else
                         'no token may come next')
    if not sampling.temperature:
        return best
    if top == math.inf:
        return best
    tokens, chances = _chances(logits, top, sampling)
    source = torch.Generator().manual_seed(
        ((sampling.seed + (position + 1) * _MIX) * _MIX & _BITS) >> 1)
    point = torch.rand((), generator=source, dtype=torch.float64) * chances.sum()
    place = int(torch.searchsorted(chances.cumsum(0), point, right=True))
    place = min(place, int(chances.nonzero()[-1]))
    return place if tokens is None else int(tokens[place])


def _chances(logits: Tensor, top: float, sampling: Sampling) -> tuple[Tensor | None, Tensor]:
    """
    Return the tokens among which one is drawn, the likeliest first, and their chances (double).

    Tokens None are all of the vocabulary, in its order.
    """
    warmth = max(sampling.temperature or 0.0, 1e-300)

    def weights(some: Tensor) -> Tensor:
        return ((some.double() - top) / warmth).exp()
    least = sampling.min_p or 0.0
    if not sampling.top_k and sampling.top_p in (None, 1.0):
        chances = weights(logits)
        return None, torch.where(chances >= least, chances, 0.0) if least else chances
    share = 1.0 if sampling.top_p is None else sampling.top_p
    if sampling.top_k:
        tokens = likeliest(logits, sampling.top_k)
        chances = weights(logits[tokens])
        whole = chances.sum()
    else:
        every = weights(logits)
        whole = every.sum()
        tokens = _of_share(logits, every, share)
        chances = every[tokens]
    if share < 1:
        before = chances.cumsum(0) - chances
        chances = torch.where(before < share * whole, chances, 0.0)
    return tokens, torch.where(chances >= least, chances, 0.0) if least else chances


def _of_share(logits: Tensor, weights: Tensor, share: float) -> Tensor:
    """
    Return the likeliest tokens, in order, that have at least a share of all weights together.

    Classes of weights say how small one of them may be; others are not sorted.
    """
    classes = (weights.log() / -_STEP).clamp_(0, _CLASSES - 1).long()
    sums = torch.bincount(classes, weights, _CLASSES).cumsum(0)
    least = int(torch.searchsorted(sums, share * sums[-1])) + 1  # one more: sums are rounded
    some = (classes <= least).nonzero().squeeze(1)
    return some[torch.argsort(logits[some], descending=True, stable=True)]


def likeliest(logits: Tensor, count: int) -> Tensor:
    """Return the `count` likeliest tokens, the likeliest first; of equals the first ones."""
    if count >= len(logits):
        return torch.argsort(logits, descending=True, stable=True)
    bound = torch.topk(logits, count, sorted=False).values.min()
    some = (logits >= bound).nonzero().squeeze(1)
    return some[torch.argsort(logits[some], descending=True, stable=True)[:count]]


def log_chances(logits: Tensor, token: int, count: int) -> tuple[float, list[tuple[int, float]]]:
    """Return the logarithm of a token's chance, and the `count` likeliest ones with theirs."""
    whole = logits.double()
    whole = whole - whole.logsumexp(0)
    top = likeliest(logits, count).tolist() if count else []
    return float(whole[token]), [(number, float(whole[number])) for number in top]
