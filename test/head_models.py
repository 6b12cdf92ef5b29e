# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""
A small network for each head, with its card: boxes as of YOLO and DETR, bodies, classes, depth.

They take uint8 pixels, and are made with the same weights each time.
"""
from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import small_models
from small_models import convolve, Residual, seeded
import torch
from torch import nn
from torch.nn import functional as F

from intradp_ros.perception.card import HeadCard, InputCard, ModelCard
from intradp_ros.perception.graph_wrappers import BestBoxes, LikeliestClasses, Normalised

NAMES = ('a', 'b', 'c')
POINTS = 5


class Trunk(nn.Module):
    """Convolutions to an eighth of the size, where every head begins."""

    def __init__(self, width: int = 16) -> None:
        super().__init__()
        self.body = nn.Sequential(
            convolve(3, width, stride=2), Residual(width), convolve(width, width, stride=2),
            Residual(width), convolve(width, width, stride=2))

    def forward(self, pixels: torch.Tensor) -> torch.Tensor:
        return self.body(pixels)


class Detr(nn.Module):
    """Learned queries that look at all places: logits with one class more, shares of the size."""

    def __init__(self, width: int = 16, queries: int = 12) -> None:
        super().__init__()
        self.trunk = Trunk(width)
        self.queries = nn.Parameter(torch.randn(1, queries, width))
        self.keys, self.values = nn.Linear(width, width), nn.Linear(width, width)
        self.logits, self.boxes = nn.Linear(width, len(NAMES) + 1), nn.Linear(width, 4)

    def forward(self, pixels: torch.Tensor) -> dict[str, torch.Tensor]:
        places = self.trunk(pixels).flatten(2).transpose(1, 2)
        found = F.scaled_dot_product_attention(
            4 * self.queries, self.keys(places), self.values(places)) + self.queries
        return {'logits': 3 * self.logits(found), 'pred_boxes': self.boxes(found).sigmoid()}


class Bodies(nn.Module):
    """Boxes, scores and key points of every place, as YOLO's head for poses has them."""

    def __init__(self, width: int = 16) -> None:
        super().__init__()
        self.trunk = Trunk(width)
        self.head = nn.Conv2d(width, 4 + 1 + 3 * POINTS, 1)

    def forward(self, pixels: torch.Tensor) -> torch.Tensor:
        raw = self.head(self.trunk(pixels)).flatten(2)
        middle, size, rest = raw[:, :2].sigmoid() * 60, raw[:, 2:4].sigmoid() * 30, raw[:, 4:]
        return torch.cat([middle, size, rest.sigmoid() * torch.tensor(
            [1.0] + [60.0, 60.0, 1.0] * POINTS).view(1, -1, 1)], 1)


class Maps(nn.Module):
    """Maps of an eighth of the size, of so many channels."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.trunk, self.head = Trunk(), nn.Conv2d(16, channels, 1)

    def forward(self, pixels: torch.Tensor) -> torch.Tensor:
        return self.head(self.trunk(pixels))


class Metres(Maps):
    """Depth."""

    def __init__(self) -> None:
        super().__init__(1)

    def forward(self, pixels: torch.Tensor) -> dict[str, torch.Tensor]:
        return {'depth': 0.5 + 10 * super().forward(pixels).sigmoid()}


@dataclass(frozen=True)
class HeadModel:
    """A network and its card; `topic` is where its answers are published."""

    make: Callable[[], nn.Module]
    card: ModelCard
    topic: str


def _pixels(make: Callable[[], nn.Module]) -> nn.Module:
    return Normalised(seeded(make), (0.5, 0.5, 0.5), (0.3, 0.3, 0.3))


def _card(head: HeadCard, fit: str = 'stretch') -> ModelCard:
    return ModelCard('small', input=InputCard(fit), head=head, labels=NAMES)


MODELS: Mapping[str, HeadModel] = {
    'yolo': HeadModel(small_models.detector, _card(
        HeadCard('detections', score_threshold=0.3, form='xywh'), 'letterbox'), 'detections'),
    'detr': HeadModel(lambda: _pixels(Detr), _card(
        HeadCard('detections', score_threshold=0.2, iou_threshold=1.0, form='xywh',
                 relative=True)),
        'detections'),
    'bodies': HeadModel(lambda: BestBoxes(_pixels(Bodies), 1, 10), _card(
        HeadCard('detections', score_threshold=0.1, form='xywh'), 'letterbox'), 'key_points'),
    'segmentation': HeadModel(lambda: LikeliestClasses(_pixels(lambda: Maps(3))), _card(
        HeadCard('segmentation'), 'crop'), 'labels'),
    'depth': HeadModel(lambda: _pixels(Metres), _card(HeadCard('depth'), 'letterbox'),
                       'depth/image'),
    'heat': HeadModel(lambda: _pixels(lambda: Maps(POINTS)), _card(
        HeadCard('key_points', score_threshold=0.0)), 'key_points'),
    'classification': HeadModel(small_models.classes, ModelCard(
        'small', head=HeadCard('classification', score_threshold=0.0, max_detections=5,
                               softmax=True)),
        'classification'),
}
