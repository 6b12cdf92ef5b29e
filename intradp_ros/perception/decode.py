# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""From outputs to an answer, by the head that the card names."""
from __future__ import annotations

from collections.abc import Callable, Mapping

from intradp_ros.perception.card import HeadCard
from intradp_ros.perception.heads.classes import classification
from intradp_ros.perception.heads.dense_heads import depth, segmentation
from intradp_ros.perception.heads.detections import detections
from intradp_ros.perception.heads.key_points import key_points
from intradp_ros.perception.heads.named_outputs import Outputs
from intradp_ros.perception.predictions import Prediction
from intradp_ros.perception.view import View

HEADS: Mapping[str, Callable[[Outputs, HeadCard, View], Prediction]] = {
    'detections': detections, 'classification': classification, 'segmentation': segmentation,
    'depth': depth, 'key_points': key_points}


def decode(outputs: Outputs, card: HeadCard, view: View) -> Prediction | None:
    """
    Return what the outputs say, None if they are tensors only.

    :raises HeadError: if they do not fit the card's head.
    """
    head = HEADS.get(card.kind)
    return head(outputs, card, view) if head else None
