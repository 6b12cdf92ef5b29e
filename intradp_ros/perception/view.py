# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""How a picture lies in a model's input: stretched, in a letterbox or cropped; there and back."""
from __future__ import annotations

from dataclasses import dataclass
import math
from typing import Any

import cv2
import numpy as np
import numpy.typing as npt
import PIL.Image

from intradp_ros.perception.card import InputCard

Array = npt.NDArray[Any]
Size = tuple[int, int]
"""Height and width in pixels."""


@dataclass(frozen=True, slots=True)
class Region:
    """A part of a picture: left and top edge, width and height in pixels."""

    x: int
    y: int
    width: int
    height: int


@dataclass(frozen=True, slots=True)
class View:
    """
    Where the picture's pixels lie in the input: ``input = picture * scale + shift``.

    `source` is the size of the picture, `target` of the input, and `part`
    what of the picture lies in the input or would if that went on.  Scale
    and shift are of x, then y; coordinates count from the edge of the first
    pixel, so that its middle is at 0.5.
    """

    source: Size
    target: Size
    part: Region
    scale: tuple[float, float]
    shift: tuple[float, float]

    def points_back(self, points: Array) -> Array:
        """Return points (..., 2: x and y) of the input in the picture's pixels."""
        back: Array = (points - np.array(self.shift)) / np.array(self.scale)
        return back

    def boxes_back(self, boxes: Array) -> Array:
        """Return boxes (n, 4: two corners) of the input in the picture's pixels, cut to `part`."""
        part = self.part
        low, high = (part.x, part.y), (part.x + part.width, part.y + part.height)
        found: Array = self.points_back(boxes.reshape(-1, 2, 2)).clip(low, high).reshape(-1, 4)
        return found

    def map_back(self, dense: Array, outside: float, *, smooth: bool) -> Array:
        """
        Return a map (h, w) of the input, of any resolution, on the picture's pixels.

        Pixels that the input does not show are `outside`; between the map's
        pixels values are those of the nearest, or interpolated if `smooth`.
        """
        shown = self._smooth(dense) if smooth else self._nearest(dense)
        across, down = self._seen()
        if not down.all():
            shown[~down] = outside
        if not across.all():
            shown[:, ~across] = outside
        return shown

    def _nearest(self, dense: Array) -> Array:
        indices = []
        for axis, count in enumerate(dense.shape[::-1]):
            cells, coarse = self._cells(axis, count)
            nearest = np.floor(self._middles(axis) * coarse).astype(np.intp)
            indices.append(nearest.clip(cells.start, min(cells.stop, count) - 1))
        # Columns first, of the few rows that there are: then rows are copied whole.
        found: Array = dense.take(indices[0], 1).take(indices[1], 0)
        return found

    def _smooth(self, dense: Array) -> Array:
        matrix, shown = np.zeros((2, 3)), []
        for axis, count in enumerate(dense.shape[::-1]):
            cells, coarse = self._cells(axis, count)
            shown.append(cells)
            scale, shift = self.scale[axis], self.shift[axis]
            matrix[axis, axis] = scale * coarse
            matrix[axis, 2] = (0.5 * scale + shift) * coarse - 0.5 - cells.start
        found: Array = cv2.warpAffine(
            np.ascontiguousarray(dense[shown[1], shown[0]]), matrix, self.source[::-1],
            flags=cv2.INTER_LINEAR | cv2.WARP_INVERSE_MAP, borderMode=cv2.BORDER_REPLICATE)
        return found

    def _cells(self, axis: int, count: int) -> tuple[slice, float]:
        """Return which of a map's cells show the part, and how many an input's pixel is."""
        coarse = count / self.target[1 - axis]
        first, last = (edge * coarse for edge in self._span(axis))
        low = min(max(0, math.floor(first)), count - 1)
        return slice(low, max(low + 1, math.ceil(last))), coarse

    def _span(self, axis: int) -> tuple[float, float]:
        """Return from where to where the part lies in the input, along x (0) or y (1)."""
        first, count = ((self.part.x, self.part.width), (self.part.y, self.part.height))[axis]
        scale, shift = self.scale[axis], self.shift[axis]
        return first * scale + shift, (first + count) * scale + shift

    def _seen(self) -> tuple[Array, Array]:
        """Return which of the picture's columns, and which of its rows, the input shows."""
        shown = []
        for axis, size in enumerate(self.target[::-1]):
            middles, (first, last) = self._middles(axis), self._span(axis)
            shown.append((middles >= max(0.0, first)) & (middles < min(size, last)))
        across, down = shown
        return across, down

    def _middles(self, axis: int) -> Array:
        """Return where the middles of the picture's columns (0) or rows (1) lie in the input."""
        found: Array = (np.arange(self.source[1 - axis]) + 0.5) * self.scale[axis] \
            + self.shift[axis]
        return found


def place(source: Size, target: Size, resize: str, region: Region | None = None,
          share: float = 1.0, crop_offset: str = 'rounded') -> View:
    """
    Return how a picture, or a region of it, lies in an input.

    :param resize: ``stretch`` to the input's form, ``letterbox`` to show all of
        it between borders, or ``crop`` to fill the input with its middle.
    :param share: of the picture (of its shorter side where it is cropped) that
        the input shows, from the middle.
    :param crop_offset: see `InputCard`.

    Sizes and places are rounded as torchvision's Resize and CenterCrop do.
    """
    part = region or Region(0, 0, source[1], source[0])
    height, width = target
    tall, wide = round(height / share), round(width / share)
    if resize == 'letterbox':
        scale = min(width / part.width, height / part.height)
        wide, tall = max(1, round(part.width * scale)), max(1, round(part.height * scale))
    elif resize == 'crop':
        # Whole numbers: a quotient times a size may fall below the size itself.
        if wide * part.height >= tall * part.width:
            tall = wide * part.height // part.width
        else:
            wide = tall * part.width // part.height
    left, top = (_middle(room, crop_offset) for room in (width - wide, height - tall))
    scales = (wide / part.width, tall / part.height)
    return View(source, target, part, scales, (left - part.x * scales[0],
                                               top - part.y * scales[1]))


def _middle(room: int, crop_offset: str) -> int:
    """Return where something lies in the middle of room, which is below 0 where it is cut."""
    if room >= 0:
        return room // 2
    return -round(-room / 2) if crop_offset == 'rounded' else -(-room // 2)


def cut(size: Size, region: Region) -> Region:
    """
    Return the part of a region that lies in a picture.

    :raises ValueError: if there is none.
    """
    left, top = max(0, region.x), max(0, region.y)
    right = min(size[1], region.x + region.width)
    bottom = min(size[0], region.y + region.height)
    if right <= left or bottom <= top:
        raise ValueError(f'the region {region} lies outside of a picture of {size[1]} x {size[0]}')
    return Region(left, top, right - left, bottom - top)


def as_carded(rgb: Array, target: Size, card: InputCard, region: Region | None = None,
              ) -> tuple[Array, View]:
    """Return a picture as an input of that size in the way of a card, and how it lies in it."""
    return fitted(rgb, target, card.resize, card.pad, region, card.interpolation, card.share,
                  card.crop_offset)


def fitted(rgb: Array, target: Size, resize: str, pad: int, region: Region | None = None,
           interpolation: str = 'area', share: float = 1.0, crop_offset: str = 'rounded',
           ) -> tuple[Array, View]:
    """Return a picture (h, w, 3) as an input of that size, and how it lies in it."""
    part = cut(rgb.shape[:2], region) if region else None
    view = place(rgb.shape[:2], target, resize, part, share, crop_offset)
    if part:
        rgb = rgb[part.y:part.y + part.height, part.x:part.x + part.width]
    height, width = target
    tall, wide = round(rgb.shape[0] * view.scale[1]), round(rgb.shape[1] * view.scale[0])
    if rgb.shape[:2] != (tall, wide):
        rgb = _resized(rgb, (wide, tall), interpolation)
    if (tall, wide) == target:
        return rgb, view
    left, top = (_middle(room, crop_offset) for room in (width - wide, height - tall))
    if resize != 'letterbox':
        return rgb[-top:height - top, -left:width - left], view
    framed = np.full((height, width, 3), pad, np.uint8)
    framed[top:top + tall, left:left + wide] = rgb
    return framed, view


def _resized(rgb: Array, size: tuple[int, int], interpolation: str) -> Array:
    """Return a picture of another width and height."""
    ways = {'area': cv2.INTER_AREA, 'linear': cv2.INTER_LINEAR}
    if interpolation == 'nearest_exact':  # in single precision, as PyTorch
        rows, columns = (np.floor((np.arange(new, dtype=np.float32) + np.float32(0.5))
                                  * np.float32(old / new)).clip(0, old - 1).astype(np.intp)
                         for new, old in zip(size[::-1], rgb.shape))
        chosen: Array = rgb[rows][:, columns]
        return chosen
    if interpolation in ways:
        return cv2.resize(rgb, size, interpolation=ways[interpolation])
    way = PIL.Image.Resampling[interpolation.upper()]
    return np.asarray(PIL.Image.fromarray(np.ascontiguousarray(rgb)).resize(size, way))
