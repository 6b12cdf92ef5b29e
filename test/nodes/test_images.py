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

from intradp_ros.nodes.common.bits_in_use import BitsInUse
from intradp_ros.nodes.sensors.image_messages import (
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


COLOURED = ('rgb', 'bgr', 'rgba', 'bgra')


def published(rgb: np.ndarray, raw: str, kind: str, *, target: bool = True,
              ) -> tuple[CompressedImage, np.ndarray]:
    """
    Return a picture as compressed_image_transport publishes it, and as the raw topic has it.

    By its source: colours are brought to bgr8 (png: of the bits that they
    have) and said to be; what has none is encoded as it is, with nothing
    behind ``compressed``.  Without `target` colours are encoded in the raw
    topic's order, as older versions and other publishers do.
    """
    name, bits = raw.rstrip('0123456789'), int(raw[len(raw.rstrip('0123456789')):])
    numbers = rgb.astype(np.uint16) * 257 if bits == 16 else rgb
    if name in COLOURED:
        order = [*map('rgb'.index, name[:3])]
        plain = np.concatenate([numbers[..., order], numbers[..., :1]][:len(name) - 2], -1)
        sent = numbers[..., ::-1] if target else plain
        to = (f'bgr{8 if kind == "jpeg" else bits}' if target else raw)
    elif name == 'mono':
        plain = sent = numbers[..., 0]
        to = ''
    else:
        cell = name.removeprefix('bayer_')
        plain = sent = np.zeros(rgb.shape[:2], numbers.dtype)
        for place, colour in enumerate(cell):
            at = (slice(place // 2, None, 2), slice(place % 2, None, 2))
            plain[at] = numbers[(*at, 'rgb'.index(colour))]
        to = ''
    if kind == 'jpeg' and bits == 16:
        sent = (sent >> 8).astype(np.uint8)
    encoded = cv2.imencode({'jpeg': '.jpg'}.get(kind, f'.{kind}'), np.ascontiguousarray(sent),
                           [cv2.IMWRITE_JPEG_QUALITY, 100])[1]
    message = CompressedImage(format=f'{raw}; {kind} compressed {to}')
    message.data = array.array('B', encoded.tobytes())
    data = np.ascontiguousarray(plain)
    original = image(data.view(np.uint8).reshape(*rgb.shape[:2], -1), raw)
    original.width = rgb.shape[1]
    return message, to_rgb(original)


SMOOTH = np.stack([np.tile(np.linspace(20, 220, 48), (32, 1)),
                   np.tile(np.linspace(200, 40, 32), (48, 1)).T,
                   np.full((32, 48), 90.0)], -1).astype(np.uint8)


@pytest.mark.parametrize('kind', ['jpeg', 'png', 'tiff'])
@pytest.mark.parametrize('raw', [
    *(f'{name}{bits}' for name in COLOURED for bits in (8, 16)), 'mono8', 'mono16', 'bayer_rggb8',
    'bayer_bggr8', 'bayer_gbrg8', 'bayer_grbg8', 'bayer_rggb16', 'bayer_grbg16'])
def test_compressed_pictures_have_the_colours_of_the_raw_topic(raw: str, kind: str) -> None:
    for target in (True, False):
        if kind == 'jpeg' and not target and raw[:4] in ('rgba', 'bgra'):
            continue  # a JPEG has no alpha
        message, wanted = published(SMOOTH, raw, kind, target=target)
        lossy = kind == 'jpeg'
        apart = np.abs(decompressed(message).astype(int) - wanted)
        assert apart.max() <= (12 if lossy else 0) and apart.mean() < 2, (message.format, target)


@pytest.mark.parametrize('said', ['jpeg', 'png', 'jpg', '', 'rgb8', 'yuv422; jpeg compressed bgr8',
                                  'mjpeg; jpeg compressed bgr8', 'bgr8;png compressed bgr8',
                                  'rgb8; JPEG compressed BGR8',
                                  'bayer_rggb8; jpeg compressed bgr8',
                                  'mono8; jpeg compressed bgr8', '8UC3; png compressed '])
def test_ordinary_pictures_keep_their_colours(said: str) -> None:
    """As every viewer shows them: cameras without image_transport, old bare formats."""
    message = CompressedImage(format=said)
    message.data = array.array('B', cv2.imencode('.png', RGB[..., ::-1])[1].tobytes())
    assert np.array_equal(decompressed(message), RGB)


@pytest.mark.parametrize(('said', 'pixels', 'says'), [
    ('16UC1; compressedDepth png', RGB, 'compressedDepth'),
    ('bayer_rggb12; png compressed ', RGB[..., 0], "'bayer_rggb12' is not supported"),
    ('32FC1; tiff compressed ', RGB[..., 0].astype(np.float32), 'float32')])
def test_formats_that_cannot_be_followed_are_refused(said: str, pixels: np.ndarray,
                                                     says: str) -> None:
    suffix = '.tiff' if 'tiff' in said else '.png'
    message = CompressedImage(format=said)
    message.data = array.array('B', cv2.imencode(suffix, pixels)[1].tobytes())
    with pytest.raises(ImageError, match=says):
        decompressed(message)


@pytest.mark.parametrize('used', [10, 12, 14])
@pytest.mark.parametrize('encoding', ['mono16', 'bayer_rggb16', '16UC1'])
def test_fewer_bits_than_the_encoding_has(encoding: str, used: int) -> None:
    """With the bits in use given the picture is that of 8 bits; else it is said to be dark."""
    grey = RGB[..., :1].repeat(2, 1)[:4]
    grey[0, 0] = 255
    eight = to_rgb(image(grey, encoding.replace('16', '8') if encoding != '16UC1' else 'mono8'))
    numbers = grey.astype('<u2') << (used - 8)
    sent = image(numbers.view(np.uint8).reshape(*grey.shape[:2], 2), encoding)
    bits, believed = BitsInUse(used), BitsInUse()
    assert np.array_equal(to_rgb(sent, bits), eight)
    assert to_rgb(sent, believed).max() < 64 and not believed.finding
    for _ in range(40):
        to_rgb(sent, believed)
        to_rgb(sent, bits)
    assert f'set image_bits to {used}' in believed.finding and encoding in believed.finding
    assert not bits.finding
    numbers[1, 1] = 2**used
    to_rgb(image(numbers.view(np.uint8).reshape(*grey.shape[:2], 2), encoding), bits)
    assert 'cut off' in bits.finding


def test_a_row_of_telemetry_or_a_hot_pixel_does_not_silence_the_warning() -> None:
    rng = np.random.default_rng(0)
    bits = BitsInUse()
    for k in range(90):
        numbers = rng.integers(0, 1 << 12, (240, 320, 1)).astype('<u2')
        numbers[0] = 65535  # a row of telemetry
        if k == 40:
            numbers[rng.integers(0, 240, 60), rng.integers(0, 320, 60)] = 40_000  # a glitch
        to_rgb(image(numbers.view(np.uint8), 'mono16'), bits)
        assert ('set image_bits to 12' in bits.finding) == (k >= 29)


def test_all_bits_in_use_are_nothing_to_report() -> None:
    bits = BitsInUse()
    for k in range(60):
        numbers = np.full((4, 4, 1), 40_000 if k >= 50 else 15, '<u2')
        to_rgb(image(numbers.view(np.uint8), 'mono16'), bits)
        assert bool(bits.finding) == (29 <= k < 53)


def test_a_small_camera_with_telemetry_that_closes_its_shutter_is_warned_about() -> None:
    """80 x 60 pixels and three rows of telemetry; every twelfth image is the shutter."""
    rng = np.random.default_rng(0)
    bits, right = BitsInUse(), BitsInUse(14)
    for k in range(60):
        numbers = rng.integers(0, 1 << 14, (63, 80, 1)).astype('<u2')
        numbers[60:] = 65535
        for each in (bits, right):
            each.look(np.full_like(numbers, 65535) if k % 12 == 5 else numbers, 'mono16')
        assert ('set image_bits to 14' in bits.finding) == (k >= 29)
    assert 'cut off' in right.finding


def big_png() -> bytes:
    """Return the beginning of a picture that claims 9000 x 9000 pixels."""
    data = cv2.imencode('.png', RGB)[1].tobytes()
    header = b'IHDR' + struct.pack('>IIBBBBB', 9_000, 9_000, 8, 2, 0, 0, 0)
    return data[:12] + header + struct.pack('>I', zlib.crc32(header)) + data[33:]


@pytest.mark.parametrize(('data', 'says'), [
    (b'', 'no JPEG'), (b'no picture', 'no JPEG'), (big_png(), '9000 x 9000 pixels'),
    (cv2.imencode('.png', RGB)[1].tobytes()[:40], 'no JPEG'),
    (cv2.imencode('.bmp', RGB)[1].tobytes(), 'no JPEG'), (b'II*\0\xff\xff\xff\xff', 'no JPEG'),
    (cv2.imencode('.tiff', RGB)[1].tobytes()[:60], 'TIFF|decode')])
def test_impossible_compressed_images_are_refused(data: bytes, says: str) -> None:
    with pytest.raises(ImageError, match=says):
        decompressed(CompressedImage(format='jpeg', data=array.array('B', data)))


def test_a_card_says_what_becomes_of_pixels() -> None:
    """Colours the other way round, mean and deviation, a letterbox."""
    card = InputCard('letterbox', 0, 'bgr', (0.5, 0.4, 0.3), (0.2, 0.3, 0.4))
    made = to_input(RGB, (1, 3, 7, 7), torch.float32, card)
    pixels = torch.from_numpy(RGB[..., ::-1].transpose(2, 0, 1).copy()) / 255
    wanted = (pixels - torch.tensor(card.mean).view(3, 1, 1)) / torch.tensor(
        card.std).view(3, 1, 1)
    torch.testing.assert_close(made[0, :, 1:6], wanted)
    torch.testing.assert_close(made[0, :, 0, 0], -torch.tensor(card.mean) / torch.tensor(
        card.std))


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
