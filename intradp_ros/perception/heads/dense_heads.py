# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""Answers for every pixel: classes and depth."""
from __future__ import annotations

import numpy as np

from intradp_ros.perception.card import HeadCard
from intradp_ros.perception.heads.named_outputs import HeadError, only, Outputs, read
from intradp_ros.perception.predictions import Depth, LabelMap
from intradp_ros.perception.view import View

MOST_CLASSES = 65_536


def segmentation(outputs: Outputs, card: HeadCard, view: View) -> LabelMap:
    """
    Return a class for each of the picture's pixels; 0 where the input does not show it.

    Reads ``labels`` (or the first output): whole numbers (1, h, w), or
    logits (1, classes, h, w), where a single class is 1 where it is likelier than not.

    :raises HeadError: if that is neither, or has classes that no image holds.
    """
    name = only(outputs, 'labels')
    tensor = outputs.get(name)
    if tensor is not None and tensor.dim() == 3 and not tensor.is_floating_point():
        labels = read(outputs, name, 3)
    else:
        logits = read(outputs, name, 4)
        labels = logits.argmax(0) if len(logits) != 1 else (logits[0] > 0).astype(np.uint8)
    if labels.size and (labels.min() < 0 or labels.max() >= MOST_CLASSES):
        raise HeadError(f'classes from {labels.min()} to {labels.max()}; an image has room for '
                        f'0 to {MOST_CLASSES - 1}')
    return LabelMap(view.map_back(labels.astype(np.uint16), 0, smooth=False))


def depth(outputs: Outputs, card: HeadCard, view: View) -> Depth:
    """
    Return metres for each of the picture's pixels, not a number where the input does not show it.

    Reads ``depth`` (or the first output): (1, 1, h, w) or (1, h, w).

    :raises HeadError: if that is not a map.
    """
    name = only(outputs, 'depth')
    tensor = outputs.get(name)
    flat = tensor is not None and tensor.dim() == 3
    dense = read(outputs, name, 3 if flat else 4)
    if not flat and len(dense) != 1:
        raise HeadError(f'depth is one map; {name!r} has {len(dense)}')
    return Depth(view.map_back((dense if flat else dense[0]).astype(np.float32), np.nan,
                               smooth=True))
