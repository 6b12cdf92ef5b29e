# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""Texts of SHA-256, and the bytes of tensors that they name."""
from __future__ import annotations

import re

import torch

_SHA = re.compile(r'[0-9a-f]{64}')


def is_digest(text: object) -> bool:
    """Return whether something is the text of a SHA-256 as it is written here."""
    return isinstance(text, str) and _SHA.fullmatch(text) is not None


def flat_bytes(tensor: torch.Tensor) -> torch.Tensor:
    """Return a tensor's elements as bytes in row-major order, without a copy if it can be."""
    return tensor.detach().contiguous().reshape(-1).view(torch.uint8)
