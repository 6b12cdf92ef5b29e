# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""sensor_msgs/Image and CompressedImage to tensors and back, without cv_bridge."""
from __future__ import annotations

import array
from dataclasses import dataclass
import io
import re
from typing import Any

import cv2
import numpy as np
import numpy.typing as npt
import PIL.Image
import PIL.TiffImagePlugin
from sensor_msgs.msg import CompressedImage, Image
import torch

from intradp_ros.nodes.common.bits_in_use import BitsInUse
from intradp_ros.perception.card import InputCard
from intradp_ros.perception.view import as_carded
from intradp_ros.wire.tensors import tensor_bytes

Array = npt.NDArray[Any]
#: Pixels above which a compressed image is refused.
MOST_PIXELS = 2**26
_FORMATS = ('JPEG', 'PNG', 'WEBP', 'TIFF')
#: Tags of a TIFF that hold its width and height.
_TIFF_SIZE = (256, 257)
_TIFF_BEGINS = (b'II*\0', b'MM\0*')


class ImageError(ValueError):
    """An image message that cannot be used; the text says why."""


@dataclass(frozen=True, slots=True)
class _Encoding:
    """How many numbers of how many bits a pixel has, and OpenCV's way from them to RGB."""

    channels: int
    to_rgb: int | None
    bits: int = 8


_COLOURED = {
    'rgb': (3, None), 'bgr': (3, cv2.COLOR_BGR2RGB), 'rgba': (4, cv2.COLOR_RGBA2RGB),
    'bgra': (4, cv2.COLOR_BGRA2RGB), 'mono': (1, cv2.COLOR_GRAY2RGB),
    'bayer_rggb': (1, cv2.COLOR_BayerRGGB2RGB), 'bayer_bggr': (1, cv2.COLOR_BayerBGGR2RGB),
    'bayer_gbrg': (1, cv2.COLOR_BayerGBRG2RGB), 'bayer_grbg': (1, cv2.COLOR_BayerGRBG2RGB)}
_UYVY, _YUYV = _Encoding(2, cv2.COLOR_YUV2RGB_UYVY), _Encoding(2, cv2.COLOR_YUV2RGB_YUYV)
_ENCODINGS = {
    **{f'{name}{bits}': _Encoding(channels, way, bits)
       for bits in (8, 16) for name, (channels, way) in _COLOURED.items()},
    '8UC1': _Encoding(1, cv2.COLOR_GRAY2RGB), '8UC3': _Encoding(3, cv2.COLOR_BGR2RGB),
    '16UC1': _Encoding(1, cv2.COLOR_GRAY2RGB, 16),
    'yuv422': _UYVY, 'uyvy': _UYVY, 'yuv422_yuy2': _YUYV, 'yuyv': _YUYV}


def to_rgb(message: Image, bits: BitsInUse | None = None) -> Array:
    """
    Return the pixels as uint8 RGB, shape (height, width, 3).

    Of 16 bits those count that `bits` says are in use, the upper 8 of them.

    :raises ImageError: if the encoding is not supported or the data do not fit the size.
    """
    encoding = _ENCODINGS.get(message.encoding)
    if encoding is None:
        raise ImageError(
            f'encoding {message.encoding!r} is not supported, use {", ".join(_ENCODINGS)}')
    pixels = _bytes_of(message, encoding)
    if encoding.bits == 16:
        pixels = _eight_bits(pixels.view('>u2' if message.is_bigendian else '<u2'),
                             message.encoding, bits)
    return _coloured(pixels, message.encoding, encoding.to_rgb)


def _eight_bits(numbers: Array, encoding: str, bits: BitsInUse | None) -> Array:
    """Return the upper 8 of the bits in use of 16-bit numbers."""
    used = (bits or BitsInUse()).look(numbers, encoding)
    upper = numbers >> (used - 8)
    return (upper if used == 16 else np.minimum(upper, 255)).astype(np.uint8)


def _coloured(pixels: Array, encoding: str, to_rgb: int | None) -> Array:
    if to_rgb is None:
        return pixels
    try:
        return cv2.cvtColor(pixels, to_rgb)
    except cv2.error as error:
        height, width = pixels.shape[:2]
        raise ImageError(f'{width} x {height} pixels of {encoding} '
                         f'are not a picture: {error.err}') from error


def _bytes_of(message: Image, encoding: _Encoding) -> Array:
    """Return the bytes of the pixels, shape (height, width, bytes of a pixel)."""
    pixel = encoding.channels * encoding.bits // 8
    width = message.width * pixel
    if message.step < width or message.height * message.step != len(message.data) or \
            not message.height * width:
        raise ImageError(
            f'{len(message.data)} bytes do not fit {message.width} x {message.height} pixels of '
            f'{message.encoding} with step {message.step}')
    rows = np.frombuffer(message.data, dtype=np.uint8).reshape(message.height, message.step)
    return rows[:, :width].reshape(message.height, message.width, pixel)


def decompressed(message: CompressedImage, bits: BitsInUse | None = None) -> Array:
    """
    Return the pixels of a JPEG, PNG, WebP or TIFF as uint8 RGB, shape (height, width, 3).

    The message's format says, as compressed_image_transport writes it, what
    they were before and how they were handed to the encoder: ``bayer_rggb8;
    png compressed `` is a mosaic, ``rgb8; jpeg compressed rgb8`` has red and
    blue exchanged.  A format without a semicolon is an ordinary picture.

    :raises ImageError: if it is none, has more than `MOST_PIXELS` pixels, or the format says what
        cannot be followed.
    """
    data = bytes(message.data)
    raw, semicolon, rest = (part.strip() for part in message.format.partition(';'))
    if 'compresseddepth' in rest.lower():
        raise ImageError(f'format {message.format!r:.80} is of the transport compressedDepth, '
                         'for depth; pictures come as raw or compressed')
    try:
        width, height = _size_of(data)
    except Exception as error:  # whatever a broken header brings about
        raise ImageError(f'format {message.format!r:.80}: no {", ".join(_FORMATS)} picture: '
                         f'{error}') from error
    if width * height > MOST_PIXELS:
        raise ImageError(f'{width} x {height} pixels; {MOST_PIXELS} at most')
    pixels = _decoded(data)
    if pixels is None:
        raise ImageError(f'format {message.format!r:.80}: OpenCV does not decode it')
    return _as_raw(pixels, raw if semicolon else '', rest, bits)


def _decoded(data: bytes) -> Array | None:
    try:
        found: Array | None = cv2.imdecode(np.frombuffer(data, np.uint8), cv2.IMREAD_UNCHANGED)
    except cv2.error:
        return None
    return found


def _size_of(data: bytes) -> tuple[int, int]:
    """Return width and height by the header alone."""
    if data.startswith(_TIFF_BEGINS):  # Pillow opens none of 16-bit colours
        tags = PIL.TiffImagePlugin.ImageFileDirectory_v2(data[:8])
        tags.load(_at(data, tags.next))
        width, height = (int(tags[tag]) for tag in _TIFF_SIZE)
        return width, height
    with PIL.Image.open(io.BytesIO(data), formats=_FORMATS) as header:
        return header.size


def _at(data: bytes, offset: int) -> io.BytesIO:
    file = io.BytesIO(data)
    file.seek(offset)
    return file


def _as_raw(pixels: Array, raw: str, rest: str, bits: BitsInUse | None) -> Array:
    """
    Return decoded pixels (in OpenCV's order) as RGB, by the raw encoding and what is behind it.

    Colours are exchanged where the encoder was not handed blue first: OpenCV's
    takes them for such.  So reads image_transport's own subscriber.
    """
    name = raw or 'the picture'
    channels = 1 if pixels.ndim == 2 else pixels.shape[2]
    if pixels.dtype == np.uint16:
        pixels = _eight_bits(pixels, raw or '16-bit', bits)
    if pixels.dtype != np.uint8 or channels not in (1, 3, 4):
        raise ImageError(f'{name} has {channels} x {pixels.dtype} for each pixel; pictures have '
                         '1, 3 or 4 of 8 or 16 bits')
    encoding = _ENCODINGS.get(raw)
    if channels == 1:
        if raw and encoding is None:
            raise ImageError(f'raw encoding {raw!r:.40} is not supported, use '
                             f'{", ".join(_ENCODINGS)}')
        mosaic = encoding is not None and raw.startswith('bayer')
        return _coloured(pixels, name, encoding.to_rgb if encoding and mosaic
                         else cv2.COLOR_GRAY2RGB)
    (target,) = re.findall(r'compressed\s+([a-z]+)', rest.lower())[:1] or ('',)
    of_colours = raw.startswith(('rgb', 'bgr'))
    exchanged = target.startswith('rgb') or (of_colours and not target.startswith('bgr'))
    return np.ascontiguousarray(pixels[..., :3] if exchanged else pixels[..., 2::-1])


def to_input(rgb: Array, shape: tuple[int, ...], dtype: torch.dtype,
             card: InputCard | None = None) -> torch.Tensor:
    """
    Return an image as the model's input, shape (1, 3, height, width).

    Pixels are fitted to the input's size as the card says (stretched without
    one); a floating-point input gets them in 0..1, or as the card normalises
    them, an integer one as they are.
    """
    card = card or InputCard()
    height, width = shape[-2:]
    rgb, _ = as_carded(rgb, (height, width), card)
    return as_tensor(rgb, dtype, card)


def as_tensor(rgb: Array, dtype: torch.dtype, card: InputCard) -> torch.Tensor:
    """Return an image of the input's size as the model's input."""
    pixels = rgb if card.colours == 'rgb' else rgb[..., ::-1]
    tensor = torch.from_numpy(np.ascontiguousarray(pixels.transpose(2, 0, 1)))[None]
    if not dtype.is_floating_point:
        return tensor.to(dtype)
    scaled = tensor.to(dtype) / 255
    for numbers, apply in ((card.mean, scaled.sub_), (card.std, scaled.div_)):
        if numbers:
            apply(torch.tensor(numbers, dtype=dtype).reshape(1, 3, 1, 1))
    return scaled


def read_rgb(path: str) -> Array:
    """
    Read an image file as uint8 RGB, shape (height, width, 3).

    :raises ImageError: if it is none.
    """
    pixels = cv2.imread(path, cv2.IMREAD_COLOR)
    if pixels is None:
        raise ImageError(f'{path!r} is not an image file that OpenCV reads')
    return cv2.cvtColor(pixels, cv2.COLOR_BGR2RGB)


def as_map(tensor: torch.Tensor) -> torch.Tensor | None:
    """Return a (1, 1, height, width) floating-point output as a map, None if it is not one."""
    dense = tensor.dim() == 4 and tensor.shape[:2] == (1, 1) and min(tensor.shape[2:]) > 1
    return tensor[0, 0].float() if dense and tensor.is_floating_point() else None


def to_image(pixels: torch.Tensor) -> Image:
    """Return a (height, width) map as a 32FC1 image."""
    height, width = pixels.shape
    message = Image(height=height, width=width, encoding='32FC1', step=width * 4)
    message.data = to_array(pixels)
    return message


def to_array(tensor: torch.Tensor) -> array.array[int]:
    """Return a tensor's bytes as ROS wants them (anything else is copied byte by byte)."""
    data = array.array('B')
    data.frombytes(tensor_bytes(tensor))
    return data


def rgb_to_image(rgb: Array) -> Image:
    """Return uint8 RGB pixels as an rgb8 image."""
    height, width, _ = rgb.shape
    message = Image(height=height, width=width, encoding='rgb8', step=width * 3)
    message.data = to_array(torch.from_numpy(np.ascontiguousarray(rgb)))
    return message


