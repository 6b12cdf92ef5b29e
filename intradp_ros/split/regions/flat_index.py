# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""Flat indices of elements: the same element among more or fewer rows."""
from __future__ import annotations

from dataclasses import dataclass

import torch


@dataclass(frozen=True)
class Rows:
    """Rows along one dimension, of `inner` elements each; others may stand in front of them."""

    count: int
    inner: int

    @property
    def elements(self) -> int:
        """Elements of all rows."""
        return self.count * self.inner


def recounted(indices: torch.Tensor, rows: Rows, among: Rows, shift: int) -> torch.Tensor:
    """
    Count elements of some rows among others, where the first row is row `shift`.

    Dimensions in front of the rows stay as they are.  Elements that are not
    among the new rows get an index without meaning.
    """
    moved = indices + shift * rows.inner
    if rows.count == among.count:
        return moved
    front = indices.div(rows.elements, rounding_mode='floor')
    return moved.add_(front, alpha=among.elements - rows.elements)
