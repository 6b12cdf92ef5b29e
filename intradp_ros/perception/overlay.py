# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""Answers drawn over the picture that they are about."""
from __future__ import annotations

import colorsys
from functools import cache
from typing import Any

import cv2
import numpy as np
import numpy.typing as npt

from intradp_ros.perception.card import ModelCard
from intradp_ros.perception.predictions import Classes, Depth, Detections, LabelMap, Prediction

Array = npt.NDArray[Any]
Colour = tuple[int, int, int]
_FONT = cv2.FONT_HERSHEY_SIMPLEX
_SHADE = 0.45


def overlay(rgb: Array, answer: Prediction, card: ModelCard) -> Array:
    """Return a copy of a picture (h, w, 3; RGB) with what was found in it."""
    drawn = rgb.copy()
    if isinstance(answer, Detections):
        _draw_detections(drawn, answer, card)
    elif isinstance(answer, Classes):
        for row, (number, score) in enumerate(zip(answer.classes, answer.scores)):
            _write(drawn, f'{card.label(number)} {score:.2f}', (4, 16 * (row + 1)), (0, 0, 0))
    elif isinstance(answer, LabelMap):
        _shade(drawn, answer.labels)
    elif isinstance(answer, Depth):
        drawn[:] = _coloured_depth(answer.metres)
    else:
        _draw_points(drawn, answer.points, 0.0)
    return drawn


@cache
def colour(number: int) -> Colour:
    """Return the colour of a class, those of neighbours far apart."""
    red, green, blue = colorsys.hsv_to_rgb(number * 0.618034 % 1.0, 0.85, 0.95)
    return round(255 * red), round(255 * green), round(255 * blue)


def _draw_detections(drawn: Array, found: Detections, card: ModelCard) -> None:
    if found.labels is not None:
        _shade(drawn, found.labels)
    for number in range(len(found.boxes) - 1, -1, -1):
        left, top, right, bottom = (int(edge) for edge in found.boxes[number].round())
        kind = int(found.classes[number])
        cv2.rectangle(drawn, (left, top), (right, bottom), colour(kind + 1), 2)
        _write(drawn, f'{card.label(kind)} {found.scores[number]:.2f}', (left, max(12, top)),
               colour(kind + 1))
        if found.points is not None:
            _draw_points(drawn, found.points[number], 0.5)


def _shade(drawn: Array, labels: Array) -> None:
    for number in np.unique(labels):
        if number:
            covered = labels == number
            tint = np.array(colour(int(number)), np.float32) * _SHADE
            drawn[covered] = (drawn[covered] * (1 - _SHADE) + tint).astype(np.uint8)


def _draw_points(drawn: Array, points: Array, least: float) -> None:
    for x, y, score in points:
        if score >= least and np.isfinite((x, y)).all():
            centre = np.clip((x, y), -1e6, 1e6)
            cv2.circle(drawn, (int(centre[0]), int(centre[1])), 3, (255, 220, 0), -1)


def _coloured_depth(metres: Array) -> Array:
    """Return near things bright and far ones dark, unknown ones black."""
    known = np.isfinite(metres)
    low, high = (metres[known].min(), metres[known].max()) if known.any() else (0.0, 1.0)
    shares = np.where(known, (high - metres) / max(high - low, 1e-9), 0.0)
    picture: Array = cv2.applyColorMap((255 * shares).astype(np.uint8), cv2.COLORMAP_INFERNO)
    picture[~known] = 0
    return picture[..., ::-1]


def _write(drawn: Array, text: str, corner: tuple[int, int], background: Colour) -> None:
    """Write a line whose left lower corner is given."""
    plain = text.encode('ascii', 'replace').decode()
    (width, height), base = cv2.getTextSize(plain, _FONT, 0.42, 1)
    x, y = corner
    cv2.rectangle(drawn, (x, y - height - base), (x + width, y), background, -1)
    shown = (0, 0, 0) if sum(background) > 300 else (255, 255, 255)
    cv2.putText(drawn, plain, (x, y - base // 2), _FONT, 0.42, shown, 1, cv2.LINE_AA)
