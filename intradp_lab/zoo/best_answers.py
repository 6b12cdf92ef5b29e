# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""
The best answers of a one-stage detector, decoded: all that a robot needs of some megabytes.

Each cell of each level answers for several anchors: four numbers of a box, two
of each key point, one that says how sure it is, one for each class.  The best
of them are kept, level by level, then of all levels; only they are decoded (as
in YOLOv5, the points as in KAPAO; public architecture facts).  Which of them
stand for the same object is left to anyone who asks.
"""
from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import nn

Anchors = Sequence[Sequence[tuple[int, int]]]
"""Width and height in pixels by level and anchor."""


@dataclass(frozen=True)
class Answer:
    """What a cell says for each anchor."""

    classes: int
    points: int = 0

    @property
    def placed(self) -> int:
        """Numbers that say where something is."""
        return 4 + 2 * self.points

    @property
    def channels(self) -> int:
        """Numbers in all."""
        return self.placed + 1 + self.classes


class BestAnswers(nn.Module):
    """From answers of all levels (``1 x anchors * channels x H x W``) to the best ones."""

    anchors: torch.Tensor

    def __init__(self, answer: Answer, anchors: Anchors, finest_stride: int, count: int) -> None:
        """Keep `count` answers; each level's stride is twice that of the one before."""
        super().__init__()
        self.answer, self.count = answer, count
        self.register_buffer('anchors', torch.tensor([
            [[*size, finest_stride << level] for size in sizes]
            for level, sizes in enumerate(anchors)], dtype=torch.float32))

    def forward(self, answers: Sequence[torch.Tensor]) -> tuple[torch.Tensor, torch.Tensor]:
        """
        Return the best answers to those of each level, finest first, and their classes.

        The surest comes first.  Each is ``[x, y, width, height, x and y of key
        points, sureness]`` in pixels, boxes by their centre; shapes
        (1, count, 5 + 2 points) and (1, count).
        """
        levels = [self._of_level(*level) for level in zip(answers, self.anchors)]
        found, sure, classes = (torch.cat(parts, 1) for parts in zip(*levels))
        surest, places = sure.topk(min(self.count, sure.shape[1]))
        decoded = self._decoded(_chosen(found, places))
        return torch.cat((decoded, surest[..., None]), -1), classes.gather(1, places)

    def _of_level(self, answer: torch.Tensor, anchors: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """
        Return the best answers of a level, how sure they are, and their classes.

        Behind the numbers of each stand its cell's corner, its anchor's size,
        and the stride.
        """
        batch, _, height, width = answer.shape
        said = self.answer
        rows = answer.view(batch, len(anchors), said.channels, height, width).permute(
            0, 3, 4, 1, 2).reshape(batch, -1, said.channels)
        of_class, classes = rows[..., said.placed + 1:].max(-1)
        sure = rows[..., said.placed].sigmoid() * of_class.sigmoid()
        surest, places = sure.topk(min(self.count, sure.shape[1]))
        cell, prior = places // len(anchors), anchors[places % len(anchors)]
        corner = torch.stack((cell % width, cell // width), -1) * prior[..., 2:]
        found = torch.cat((_chosen(rows[..., :said.placed], places), corner, prior), -1)
        return found, surest, classes.gather(1, places)

    def _decoded(self, found: torch.Tensor) -> torch.Tensor:
        """Return boxes and points in pixels."""
        corner, size, stride = found[..., -5:-3], found[..., -3:-1], found[..., -1:]
        near = found[..., :4].sigmoid() * 2
        box = ((near[..., :2] - 0.5) * stride + corner, near[..., 2:] ** 2 * size)
        if not self.answer.points:
            return torch.cat(box, -1)
        points = found[..., 4:-5].reshape(*found.shape[:2], -1, 2).sigmoid() * 4 - 2
        ends = points * size[..., None, :] + corner[..., None, :]
        return torch.cat((*box, ends.flatten(-2)), -1)


def _chosen(rows: torch.Tensor, places: torch.Tensor) -> torch.Tensor:
    """Return the rows at places: ``(batch, rows, n)`` and ``(batch, k)`` to ``(batch, k, n)``."""
    return rows.gather(1, places[..., None].expand(-1, -1, rows.shape[-1]))
