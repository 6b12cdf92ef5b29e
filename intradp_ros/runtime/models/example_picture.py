# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""
Pictures for models of which no real picture is at hand.

What encodings do to the values of a network depends on the picture: noise
cannot be made smaller, so that it would seem best to send pixels plain.  These
pictures have what photographs have: surfaces of all sizes that hide each other
(the "dead leaves" model: Lee, Mumford and Huang, "Occlusion models for natural
images", 2001), soft shades on them, and the noise of a sensor.
"""
from __future__ import annotations

import numpy as np
import numpy.typing as npt

#: How many leaves there are, and their least and largest radius as parts of the longer side.
_LEAVES, _LEAST, _MOST = 800, 0.01, 0.35
#: Levels (of 255) by which shades, channels, and pixels by the sensor's noise, differ.
_SHADE, _TINT, _NOISE = 40.0, 30.0, 2.0
#: Fewer pixels a side are not a picture.
_LEAST_SIDE = 8
_CHANNELS = (1, 3, 4)

Floats = npt.NDArray[np.float32]


def is_picture(shape: tuple[int, ...]) -> bool:
    """Return whether a tensor looks like pictures: ``NxCxHxW`` of 1, 3 or 4 channels."""
    return len(shape) == 4 and shape[1] in _CHANNELS and min(shape[2:]) >= _LEAST_SIDE


def example_picture(channels: int, height: int, width: int, random: np.random.Generator,
                    ) -> Floats:
    """Return a picture of levels 0 to 255, by channel, row and column."""
    picture = np.empty((channels, height, width), np.float32)
    picture[:] = random.uniform(0, 255, (channels, 1, 1))
    for radius in max(height, width) * _radii(random):
        _draw_leaf(picture, radius, random)
    picture += random.normal(0, _NOISE, picture.shape).astype(np.float32)
    return picture.clip(0, 255)


def _radii(random: np.random.Generator) -> Floats:
    """Return radii whose density falls with the third power, so that all sizes cover as much."""
    small, large = _LEAST ** -2, _MOST ** -2
    squares = small - random.uniform(0, 1, _LEAVES) * (small - large)
    return (squares ** -0.5).astype(np.float32)


def _draw_leaf(picture: Floats, radius: float, random: np.random.Generator) -> None:
    """Draw a disc over what is there, brighter to one side."""
    _, height, width = picture.shape
    row, column = random.uniform(0, height), random.uniform(0, width)
    levels = random.uniform(0, 255) + random.normal(0, _TINT, (len(picture), 1, 1))
    slope = random.normal(0, _SHADE, 2)
    top, left = max(0, int(row - radius)), max(0, int(column - radius))
    part = picture[:, top:int(row + radius) + 1, left:int(column + radius) + 1]
    rows, columns = np.ogrid[top:top + part.shape[1], left:left + part.shape[2]]
    down, right = (rows - row) / radius, (columns - column) / radius
    np.copyto(part, levels + slope[0] * down + slope[1] * right, where=down ** 2 + right ** 2 <= 1)
