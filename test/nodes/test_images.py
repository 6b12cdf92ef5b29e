# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""Images to tensors and back."""
from __future__ import annotations

import array
from typing import Any

import numpy as np
import pytest
from sensor_msgs.msg import Image
import torch

from intradp_ros.nodes.image_messages import (
    as_map,
    ImageError,
    rgb_to_image,
    to_array,
    to_image,
    to_input,
    to_rgb,
)

RGB = np.random.default_rng(1).integers(0, 256, (5, 7, 3), dtype=np.uint8)


def image(pixels: np.ndarray, encoding: str, padding: int = 0) -> Image:
    """Return an image message, with unused bytes after each row."""
    height, width = pixels.shape[:2]
    rows = pixels.reshape(height, -1)
    padded = np.concatenate([rows, np.full((height, padding), 77, np.uint8)], 1)
    message = Image(height=height, width=width, encoding=encoding, step=padded.shape[1])
    message.data = array.array('B', padded.tobytes())
    return message


@pytest.mark.parametrize('padding', [0, 3])
@pytest.mark.parametrize(('encoding', 'channels'), [
    ('rgb8', [0, 1, 2]), ('bgr8', [2, 1, 0]), ('8UC3', [2, 1, 0]), ('rgba8', [0, 1, 2, 0]),
    ('bgra8', [2, 1, 0, 0])])
def test_colours_in_any_order(encoding: str, channels: list[int], padding: int) -> None:
    """Alpha is ignored, and so are bytes beyond the row."""
    assert np.array_equal(to_rgb(image(RGB[..., channels], encoding, padding)), RGB)


@pytest.mark.parametrize('encoding', ['mono8', '8UC1'])
def test_grey_becomes_three_equal_colours(encoding: str) -> None:
    assert np.array_equal(to_rgb(image(RGB[..., :1], encoding)), RGB[..., [0, 0, 0]])


def test_rgb_survives_the_message() -> None:
    message = rgb_to_image(RGB[:, ::-1])  # rows that are not contiguous
    assert (message.height, message.width, message.step) == (5, 7, 21)
    assert np.array_equal(to_rgb(message), RGB[:, ::-1])


@pytest.mark.parametrize(('changes', 'says'), [
    ({'encoding': 'mono16'}, "'mono16' is not supported, use rgb8"), ({'encoding': ''}, 'use'),
    ({'height': 6}, '105 bytes do not fit 7 x 6'), ({'height': 2**32 - 1}, 'do not fit'),
    ({'width': 2**32 - 1}, 'do not fit'), ({'step': 20}, 'step 20'),
    ({'step': 2**32 - 1}, 'do not fit'), ({'width': 0}, '0 x 5'),
    ({'height': 0, 'data': array.array('B')}, '7 x 0'), ({'data': array.array('B')}, '0 bytes')])
def test_impossible_images_are_refused(changes: dict[str, Any], says: str) -> None:
    """The error gives the numbers that do not fit."""
    message = image(RGB, 'rgb8')
    for name, value in changes.items():
        setattr(message, name, value)
    with pytest.raises(ImageError, match=says):
        to_rgb(message)


def test_pixels_as_input() -> None:
    """Integers as they are, floats in 0..1; other sizes are resized."""
    exact = to_input(RGB, (1, 3, 5, 7), torch.uint8)
    assert torch.equal(exact, torch.from_numpy(RGB.transpose(2, 0, 1).copy())[None])
    scaled = to_input(RGB, (1, 3, 5, 7), torch.float32)
    assert torch.equal(scaled, exact.float() / 255)
    assert to_input(RGB, (1, 3, 10, 3), torch.uint8).shape == (1, 3, 10, 3)
    grey = to_input(np.full((6, 8, 3), 9, np.uint8), (1, 3, 3, 4), torch.uint8)
    assert grey.eq(9).all()


def test_maps() -> None:
    """A map keeps its numbers to the bit; what is none stays out."""
    tensor = torch.rand(1, 1, 4, 6).transpose(2, 3)
    dense = as_map(tensor)
    assert dense is not None
    message = to_image(dense)
    assert (message.height, message.width, message.encoding) == (6, 4, '32FC1')
    got = np.frombuffer(message.data, np.float32).reshape(6, 4)
    assert np.array_equal(got, tensor[0, 0].numpy())
    for other in (torch.rand(1, 2, 4, 6), torch.rand(1, 10), torch.rand(1, 1, 1, 5),
                  torch.zeros(1, 1, 4, 6, dtype=torch.int64)):
        assert as_map(other) is None


def test_bytes_of_tensors() -> None:
    assert to_array(torch.arange(3, dtype=torch.int16)) == array.array('B', [0, 0, 1, 0, 2, 0])
