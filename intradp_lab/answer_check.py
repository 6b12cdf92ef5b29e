# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""Whether the outputs of an inference are those of the unsplit model."""
from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
import math

import torch

from intradp_ros.split.checks.verify import output_error

#: Greatest difference, relative to the output's spread, that is rounding.
TOLERANCE = 1e-4
_TOP = 5


@dataclass(frozen=True, slots=True)
class Check:
    """
    How far outputs are from the unsplit ones.

    `difference` is relative to an output's spread, infinite where one side
    alone is not a number or shapes differ; `same_top` says whether the five
    largest of every vector of scores are the same ones, in order (a picture
    has many equals).
    """

    difference: float
    same_top: bool


def check(given: Sequence[torch.Tensor], wanted: Sequence[torch.Tensor]) -> Check:
    """Compare all outputs of an inference with those of the unsplit model."""
    if [t.shape for t in given] != [t.shape for t in wanted]:
        return Check(math.inf, False)
    pairs = list(zip(given, wanted))
    return Check(max((output_error('', a, b).relative for a, b in pairs), default=0.0),
                 all(torch.equal(_top(a), _top(b)) for a, b in pairs if a.ndim <= 2))


def _top(output: torch.Tensor) -> torch.Tensor:
    return output.flatten().topk(min(_TOP, output.numel())).indices


def exact(difference: float) -> bool:
    """Return whether a difference is rounding; what is not a number is not."""
    return difference <= TOLERANCE
