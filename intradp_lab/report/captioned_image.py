# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""Put an input frame and what the network made of it side by side, with a caption."""
from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import cv2
import numpy as np
import numpy.typing as npt

from intradp_ros.core.atomic_write import replacing

Picture = npt.NDArray[np.uint8]

_FONT = cv2.FONT_HERSHEY_SIMPLEX
_PAPER, _INK, _FAINT = (255, 255, 255), (34, 34, 34), (110, 110, 110)
_GAP = 8  # pixels around the pictures
_LINE = 24  # pixels of a line of text
_SCALE = 0.55  # of the font: 12 pixels high


def grey_map(values: npt.ArrayLike) -> Picture:
    """
    Return a map of numbers in [0, 1] as a grey ``HxWx3`` picture.

    :param values: ``HxW``, or with leading dimensions of 1 as a network gives it.
    :raises ValueError: for another shape.
    """
    plane = np.asarray(values, dtype=np.float32)
    if plane.ndim < 2 or plane.size != plane.shape[-2] * plane.shape[-1]:
        raise ValueError(f'one map of height x width is needed, got the shape {plane.shape}')
    plane = plane.reshape(plane.shape[-2:])
    grey = np.rint(np.clip(plane, 0, 1) * 255).astype(np.uint8)
    return np.repeat(grey[:, :, None], 3, axis=2)


def _fit(text: str, width: int, scale: float) -> float:
    """Return the font scale, at most `scale`, at which `text` is no wider than `width`."""
    wide = cv2.getTextSize(text, _FONT, scale, 1)[0][0]
    return scale if wide <= width else scale * width / wide


def _lines(texts: Sequence[str], width: int, colour: tuple[int, int, int]) -> Picture:
    """Return a white strip with lines of text."""
    strip = np.full((_LINE * len(texts), width, 3), _PAPER, np.uint8)
    for number, text in enumerate(texts):
        place = (_GAP, _LINE * number + _LINE - 8)
        cv2.putText(strip, text, place, _FONT, _fit(text, width - 2 * _GAP, _SCALE), colour, 1,
                    cv2.LINE_AA)
    return strip


def _framed(picture: Picture, heading: str) -> Picture:
    """Return a picture with a heading above and white around it."""
    bordered = cv2.copyMakeBorder(picture, 0, _GAP, _GAP, _GAP, cv2.BORDER_CONSTANT,
                                  value=_PAPER).astype(np.uint8, copy=False)
    return np.vstack((_lines([heading], bordered.shape[1], _FAINT), bordered))


def side_by_side(pictures: Sequence[tuple[str, Picture]], caption: Sequence[str]) -> Picture:
    """
    Return pictures of equal height in a row, each under its heading, over a caption.

    :param pictures: heading and uint8 ``HxWx3`` picture (RGB) of each; text is ASCII.
    :param caption: lines of text; long ones are set smaller.
    :raises ValueError: when the heights differ.
    """
    heights = {picture.shape[0] for _, picture in pictures}
    if len(heights) != 1:
        raise ValueError(f'the pictures must have one height, got {sorted(heights)}')
    row = np.hstack([_framed(picture, heading) for heading, picture in pictures])
    return np.vstack((row, _lines(caption, row.shape[1], _INK)))


def save(path: Path, picture: Picture) -> None:
    """Write a picture (RGB) in the format that the suffix of `path` says; OSError if it fails."""
    _, data = cv2.imencode(path.suffix, cv2.cvtColor(picture, cv2.COLOR_RGB2BGR))
    with replacing(path) as part:
        part.write_bytes(data.tobytes())
