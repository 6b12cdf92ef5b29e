# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""
Objects from boxes with scores, with masks or key points if the model has them.

Outputs ``boxes`` (1, n, 4), ``scores`` (1, n) and ``classes`` (1, n); or
``scores`` (1, n, classes), of which the best counts; or ``logits`` (1, n,
classes + 1) as DETR (Carion et al., ECCV 2020) has them, whose last class
stands for no object.  With ``weights`` (1, n, m) and ``masks`` (1, m, h, w)
come masks, as in YOLACT (Bolya et al., ICCV 2019); with ``points`` (1, n, 3 k)
key points: x, y and sureness of each.
"""
from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from intradp_ros.perception.card import HeadCard
from intradp_ros.perception.heads.named_outputs import HeadError, Outputs, read
from intradp_ros.perception.heads.softmax import softmax
from intradp_ros.perception.predictions import Detections
from intradp_ros.perception.view import View

Array = npt.NDArray[Any]


def detections(outputs: Outputs, card: HeadCard, view: View) -> Detections:
    """
    Return the objects in a picture's pixels.

    :raises HeadError: if the model lacks an output, or they do not fit each other.
    """
    scores, classes = _sureness(outputs)
    boxes = read(outputs, 'pred_boxes' if 'pred_boxes' in outputs else 'boxes', 3)
    if boxes.shape != (len(scores), 4):
        raise HeadError(f'{len(scores)} scores do not fit boxes of shape {boxes.shape}')
    corners = _corners(boxes.astype(np.float64), card, view)
    sure = np.flatnonzero((scores >= card.score_threshold) & np.isfinite(corners).all(1)
                          & (corners[:, :2] <= corners[:, 2:]).all(1))
    kept = sure[distinct(corners[sure], scores[sure], classes[sure], card.iou_threshold,
                         card.max_detections)]
    return Detections(view.boxes_back(corners[kept]), scores[kept], classes[kept],
                      _points(outputs, kept, view), _instances(outputs, kept, corners, view))


def _sureness(outputs: Outputs) -> tuple[Array, Array]:
    """Return how sure each box is, and of which class."""
    if 'logits' in outputs:
        shares = softmax(read(outputs, 'logits', 3))[:, :-1]
        return shares.max(1), shares.argmax(1)
    if 'classes' not in outputs:
        shares = read(outputs, 'scores', 3)
        return shares.max(1), shares.argmax(1)
    scores, classes = read(outputs, 'scores', 2), read(outputs, 'classes', 2)
    if len(scores) != len(classes):
        raise HeadError(f'{len(scores)} scores do not fit {len(classes)} classes')
    return scores, classes.astype(np.int64)


def _corners(boxes: Array, card: HeadCard, view: View) -> Array:
    """Return boxes as two corners in the input's pixels."""
    if card.form == 'xywh':
        middle, half = boxes[:, :2], boxes[:, 2:] / 2
        boxes = np.concatenate([middle - half, middle + half], 1)
    return boxes * np.tile(view.target[::-1], 2) if card.relative else boxes


def _points(outputs: Outputs, kept: Array, view: View) -> Array | None:
    if 'points' not in outputs:
        return None
    points = read(outputs, 'points', 3)
    if points.shape[1] % 3:
        raise HeadError(f'key points are x, y and sureness, three each; got {points.shape[1]}')
    found = points[kept].reshape(len(kept), points.shape[1] // 3, 3).astype(np.float64)
    found[..., :2] = view.points_back(found[..., :2])
    return found


def _instances(outputs: Outputs, kept: Array, corners: Array, view: View) -> Array | None:
    """Return for each pixel the number of the surest object whose mask covers it."""
    if 'masks' not in outputs:
        return None
    weights, masks = read(outputs, 'weights', 3), read(outputs, 'masks', 4)
    if weights.shape[1] != len(masks):
        raise HeadError(f'{weights.shape[1]} weights do not fit {len(masks)} masks')
    rows, columns = masks.shape[1:]
    numbers = np.zeros((rows, columns), np.uint8 if len(kept) < 256 else np.uint16)
    shrink = np.array([columns, rows]) / view.target[::-1]
    for number in range(len(kept), 0, -1):  # the surest last: it covers the others
        place = kept[number - 1]
        (left, top), (right, bottom) = _cells(corners[place] * np.tile(shrink, 2), rows, columns)
        covered = masks[:, top:bottom, left:right]
        part = weights[place] @ covered.reshape(len(masks), -1)
        numbers[top:bottom, left:right][part.reshape(covered.shape[1:]) > 0] = number
    return view.map_back(numbers, 0, smooth=False)


def _cells(box: Array, rows: int, columns: int) -> tuple[Array, Array]:
    """Return the first cells of a box and those behind it, within the mask."""
    limits = (columns, rows)
    return (np.floor(box[:2]).clip(0, limits).astype(int),
            np.ceil(box[2:]).clip(0, limits).astype(int))


def distinct(boxes: Array, scores: Array, classes: Array, overlap: float, most: int) -> Array:
    """
    Return the places of boxes that no surer one of their class overlaps, the surest first.

    :param boxes: two corners (n, 4).
    :param overlap: intersection over union above which they are one object.
    :param most: places at most.
    """
    waiting = np.argsort(-scores, kind='stable')
    if overlap >= 1:
        return waiting[:most]
    sides = boxes[:, 2:] - boxes[:, :2]
    areas = sides.clip(0).prod(1)
    kept: list[int] = []
    while len(waiting) and len(kept) < most:
        first, rest = waiting[0], waiting[1:]
        kept.append(int(first))
        low = np.maximum(boxes[first, :2], boxes[rest, :2])
        high = np.minimum(boxes[first, 2:], boxes[rest, 2:])
        common = (high - low).clip(0).prod(1)
        union = areas[first] + areas[rest] - common
        waiting = rest[(common <= overlap * union) | (classes[rest] != classes[first])]
    return np.array(kept, np.int64)
