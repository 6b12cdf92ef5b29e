# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""
Drawing a token: by request and position, so that a restart draws the same again.

Only the likeliest tokens are sorted, as many as `top_k` and `top_p` ask for: a vocabulary of
262,000 tokens would take longer to sort than to compute.  It is one thread's work, in NumPy:
threads that torch would wake for it go on spinning while the next token is computed.
"""
from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
import math

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from intradp_ros.runtime.requests.text_requests import Sampling

Floats = npt.NDArray[np.float32]
Doubles = npt.NDArray[np.float64]
Numbers = npt.NDArray[np.int64]
#: Logarithm of a chance that is as good as none, as OpenAI's API has it.
LEAST_CHANCE = -9999.0
_MIX, _BITS = 0x9E3779B97F4A7C15, (1 << 64) - 1
#: Classes of chances, each this many times less than the one before, by which some are sorted out.
_CLASSES, _STEP = 4096, 1 / 64


def adjusted(logits: Tensor, sampling: Sampling, tokens: Sequence[int], prompt: int) -> Tensor:
    """
    Return logits (vocabulary, float32) after the biases and penalties of a request, in this order.

    Its `tokens`, of which the first are the `prompt`, are penalised for being there: by
    `repetition_penalty` all of them, as `transformers` does, by the others those of the answer.
    """
    found = logits.numpy()
    if sampling.logit_bias:
        found = found.copy()
        for token, bias in sampling.logit_bias:
            found[token] += np.float32(bias)
    penalty = sampling.repetition_penalty
    if penalty not in (None, 1.0):
        there = np.array([*{*tokens}])
        had, found = found[there], found.copy()
        found[there] = np.where(had < 0, had * penalty, had / penalty)
    if (sampling.presence_penalty or sampling.frequency_penalty) and len(tokens) > prompt:
        found = found.copy()
        for token, count in Counter(tokens[prompt:]).items():
            found[token] -= np.float32(
                sampling.presence_penalty + sampling.frequency_penalty * count)
    return torch.from_numpy(found)


def draw(logits: Tensor, sampling: Sampling, position: int,
         allowed: npt.NDArray[np.bool_] | None = None) -> int:
    """
    Return a token for logits (vocabulary, float32).

    `allowed` (vocabulary, bool) are the tokens that may be drawn.  At temperature 0 the
    likeliest is taken, the first of equals.

    :raises ValueError: if a logit is not a number, or no token is allowed.
    """
    numbers = logits.numpy()
    if allowed is not None:
        numbers = np.where(allowed, numbers, np.float32(-math.inf))
    best = int(numbers.argmax())  # of NaN and other numbers it is NaN
    top = float(numbers[best])
    if not top > -math.inf:
        raise ValueError('logits that are not numbers' if math.isnan(top) else
                         'no token may come next')
    if not sampling.temperature or top == math.inf:
        return best
    tokens, chances = _chances(numbers, top, sampling)
    source = torch.Generator().manual_seed(
        ((sampling.seed + (position + 1) * _MIX) * _MIX & _BITS) >> 1)
    sums = chances.cumsum()
    point = float(torch.rand((), generator=source, dtype=torch.float64)) * sums[-1]
    place = min(int(sums.searchsorted(point, 'right')), int(chances.nonzero()[0][-1]))
    return place if tokens is None else int(tokens[place])


def _chances(logits: Floats, top: float, sampling: Sampling) -> tuple[Numbers | None, Doubles]:
    """
    Return the tokens among which one is drawn, the likeliest first, and their chances.

    Tokens None are all of the vocabulary, in its order.
    """
    share = 1.0 if sampling.top_p is None else max(1e-6, sampling.top_p)  # the likeliest stays
    count = sampling.top_k or len(logits)
    tokens = likeliest(logits, count) if count < len(logits) else None
    some = logits if tokens is None else logits[tokens]
    with np.errstate(over='ignore'):  # what is beyond all numbers has no chance
        away = (some.astype(np.float64) - top) / max(sampling.temperature or 0.0, 1e-300)
    chances = np.exp(away)
    if share < 1:
        whole = chances.sum()
        if tokens is None:
            tokens = _of_share(away, chances, share)
            chances = chances[tokens]
        chances[chances.cumsum() - chances >= share * whole] = 0.0
    chances[chances < (sampling.min_p or 0.0)] = 0.0
    return tokens, chances


def _of_share(away: Doubles, weights: Doubles, share: float) -> Numbers:
    """
    Return the likeliest tokens, in order, that have at least a share of all weights together.

    Classes of weights, of which `away` are the logarithms, say how small one of them may be;
    others are not sorted.
    """
    classes = np.minimum(away / -_STEP, _CLASSES - 1).astype(np.int64)
    sums = np.bincount(classes, weights).cumsum()
    least = sums.searchsorted(share * sums[-1]) + 1  # one more: sums are rounded
    return _ordered(away, np.flatnonzero(classes <= least))


def likeliest(logits: Floats | Doubles, count: int) -> Numbers:
    """Return the `count` likeliest tokens, the likeliest first; of equals the first ones."""
    least = max(len(logits) - count, 0)
    return _ordered(logits, np.flatnonzero(logits >= np.partition(logits, least)[least]))[:count]


def _ordered(by: Floats | Doubles, some: Numbers) -> Numbers:
    return some[np.argsort(-by[some], kind='stable')]


def log_chances(logits: Tensor, token: int, count: int) -> tuple[float, list[tuple[int, float]]]:
    """
    Return the logarithm of a token's chance, and the `count` likeliest ones with theirs.

    Each is a number, also of logits that are infinite or none: at least `LEAST_CHANCE`.
    """
    numbers = logits.numpy().astype(np.float64)
    with np.errstate(invalid='ignore'):
        most = np.fmax.reduce(numbers)
        whole = np.where(numbers == most, 0.0, numbers - most)
    whole[np.isnan(whole)] = -math.inf
    whole = np.maximum(whole - math.log(np.exp(whole).sum()), LEAST_CHANCE)
    top = likeliest(whole, count).tolist() if count else []
    return float(whole[token]), [(number, float(whole[number])) for number in top]
