# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""A blob that comes in pieces and stays in memory, as state that moves between devices."""
from __future__ import annotations

import hashlib

import torch


class MemoryPart:
    """The counterpart of `BlobPart` without a disk; `data` are its bytes (uint8, flat)."""

    def __init__(self, digest: str, nbytes: int) -> None:
        self._digest = digest
        self.data = torch.zeros(nbytes, dtype=torch.uint8)

    def write(self, offset: int, data: torch.Tensor) -> None:
        """Put a piece to its place; ValueError if it does not fit."""
        if not 0 <= offset <= offset + data.nbytes <= self.data.nbytes:
            raise ValueError(f'{data.nbytes} bytes at {offset} of {self.data.nbytes}')
        self.data[offset:offset + data.nbytes] = data

    def finish(self) -> bool:
        """Compare with the digest, and return whether it is right."""
        return hashlib.sha256(self.data.numpy().data).hexdigest() == self._digest

    def drop(self) -> None:
        """Forget what came."""
        self.data = torch.zeros(0, dtype=torch.uint8)
