# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""A model as it was found."""
from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import nn

from intradp_ros.perception.card import ModelCard


@dataclass(frozen=True)
class Found:
    """
    A model as it was found, and what its source says of it.

    `classes` is above 0 for detectors whose raw answers are to be chosen from
    inside.  `shape` is that of the input, 0 where it is left open, empty where
    nothing says it; `dtype` what it takes, None where nothing says it.
    `holder` is the part of the model that weights are for, None for all of it.
    `notes` are lines for the user; `problem` says why what becomes of pixels is
    not known, '' if it is.
    """

    model: nn.Module
    card: ModelCard = ModelCard()
    classes: int = 0
    shape: tuple[int, ...] = ()
    holder: nn.Module | None = None
    dtype: torch.dtype | None = None
    notes: tuple[str, ...] = ()
    problem: str = ''
