# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""Images to tensors and back."""
from __future__ import annotations

import array
import struct
from typing import Any
import zlib

import cv2
import numpy as np
import pytest
from sensor_msgs.msg import CompressedImage, Image
import torch

from intradp_ros.nodes.image_messages import (
    as_map,
    decompressed,
    ImageError,
    rgb_to_image,
    to_array,
    to_image,
    to_input,
    to_rgb,
)
from intradp_ros.perception.card import InputCard

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


@pytest.mark.parametrize('big', [0, 1])
@pytest.mark.parametrize(('encoding', 'channels'), [
    ('rgb16', [0, 1, 2]), ('bgra16', [2, 1, 0, 0]), ('mono16', [0]), ('16UC1', [0])])
def test_of_16_bits_the_upper_ones_count(encoding: str, channels: list[int], big: int) -> None:
    numbers = (RGB[..., channels].astype(np.uint16) << 8) + 77
    message = image(RGB, 'rgb8')
    data = numbers.astype('>u2' if big else '<u2').tobytes()
    message.encoding, message.is_bigendian, message.step = encoding, big, len(data) // 5
    message.data = array.array('B', data)
    assert np.array_equal(to_rgb(message), RGB if len(channels) > 1 else RGB[..., [0, 0, 0]])


@pytest.mark.parametrize(('encoding', 'order'), [
    ('yuv422', [1, 0, 3, 2]), ('uyvy', [1, 0, 3, 2]), ('yuv422_yuy2', [0, 1, 2, 3]),
    ('yuyv', [0, 1, 2, 3])])
def test_colours_that_two_pixels_share(encoding: str, order: list[int]) -> None:
    """A pair is luminance, blue, luminance, red; by ITU-R BT.601 of limited range."""
    pairs = np.tile(np.array([145, 54, 235, 34], np.uint8)[order], (4, 3)).reshape(4, 6, 2)
    rgb = to_rgb(image(pairs, encoding)).astype(int)
    assert np.abs(rgb[:, ::2] - [0, 255, 0]).max() < 8       # pure green
    assert (rgb[:, 1::2].sum(-1) > rgb[:, ::2].sum(-1)).all()  # the brighter one


@pytest.mark.parametrize('bits', [8, 16])
@pytest.mark.parametrize('pattern', ['rggb', 'bggr', 'gbrg', 'grbg'])
def test_colours_of_a_mosaic(pattern: str, bits: int) -> None:
    colours = np.array([200, 120, 40])
    cell = np.array([['rgb'.index(c) for c in pattern[:2]], ['rgb'.index(c) for c in pattern[2:]]])
    mosaic = colours[np.tile(cell, (4, 6))].astype(np.uint16) << (bits - 8)
    data = mosaic.astype('<u2' if bits == 16 else 'u1')
    message = image(data.view(np.uint8).reshape(8, -1, 1), f'bayer_{pattern}{bits}')
    message.width = 12
    assert np.array_equal(to_rgb(message), np.broadcast_to(colours, (8, 12, 3)))


@pytest.mark.parametrize(('suffix', 'kind'), [('.jpg', 'jpeg'), ('.png', 'png'),
                                              ('.webp', 'webp')])
def test_compressed_images(suffix: str, kind: str) -> None:
    """What comes out is what OpenCV decodes, in the order of a sensor's colours."""
    smooth = np.ascontiguousarray(np.tile(RGB[:1, :1], (40, 60, 1)))
    encoded = cv2.imencode(suffix, smooth[..., ::-1])[1]
    message = CompressedImage(format=f'rgb8; {kind} compressed bgr8')
    message.data = array.array('B', encoded.tobytes())
    assert np.abs(decompressed(message).astype(int) - smooth).max() < 12


def big_png() -> bytes:
    """Return the beginning of a picture that claims 9000 x 9000 pixels."""
    data = cv2.imencode('.png', RGB)[1].tobytes()
    header = b'IHDR' + struct.pack('>IIBBBBB', 9_000, 9_000, 8, 2, 0, 0, 0)
    return data[:12] + header + struct.pack('>I', zlib.crc32(header)) + data[33:]


@pytest.mark.parametrize(('data', 'says'), [
    (b'', 'no JPEG'), (b'no picture', 'no JPEG'), (big_png(), '9000 x 9000 pixels'),
    (cv2.imencode('.png', RGB)[1].tobytes()[:40], 'no JPEG'),
    (cv2.imencode('.bmp', RGB)[1].tobytes(), 'no JPEG')])
def test_impossible_compressed_images_are_refused(data: bytes, says: str) -> None:
    with pytest.raises(ImageError, match=says):
        decompressed(CompressedImage(format='jpeg', data=array.array('B', data)))


def test_a_card_says_what_becomes_of_pixels() -> None:
    """Colours the other way round, mean and deviation, a letterbox."""
    card = InputCard('letterbox', 0, 'bgr', (0.5, 0.4, 0.3), (0.2, 0.3, 0.4))
    made = to_input(RGB, (1, 3, 7, 7), torch.float32, card)
    pixels = torch.from_numpy(RGB[..., ::-1].transpose(2, 0, 1).copy()) / 255
    wanted = (pixels - torch.tensor(card.mean).view(3, 1, 1)) / torch.tensor(
        card.deviation).view(3, 1, 1)
    torch.testing.assert_close(made[0, :, 1:6], wanted)
    torch.testing.assert_close(made[0, :, 0, 0], -torch.tensor(card.mean) / torch.tensor(
        card.deviation))


@pytest.mark.parametrize(('changes', 'says'), [
    ({'encoding': '32FC1'}, "'32FC1' is not supported, use rgb8"), ({'encoding': ''}, 'use'),
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
