# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""sensor_msgs/Image to tensors and back, by NumPy and OpenCV alone."""
from __future__ import annotations

import array
from typing import Any

import cv2
import numpy as np
import numpy.typing as npt
from sensor_msgs.msg import Image
import torch

from intradp_ros.wire.tensors import tensor_bytes

Array = npt.NDArray[Any]
#: How pixels of each encoding become RGB: channels, and the OpenCV conversion.
_TO_RGB: dict[str, tuple[int, int | None]] = {
    'rgb8': (3, None), 'bgr8': (3, cv2.COLOR_BGR2RGB), 'rgba8': (4, cv2.COLOR_RGBA2RGB),
    'bgra8': (4, cv2.COLOR_BGRA2RGB), 'mono8': (1, cv2.COLOR_GRAY2RGB),
    '8UC1': (1, cv2.COLOR_GRAY2RGB), '8UC3': (3, cv2.COLOR_BGR2RGB)}


class ImageError(ValueError):
    """An image message that cannot be used; the text says why."""


def to_rgb(message: Image) -> Array:
    """
    Return the pixels as uint8 RGB, shape (height, width, 3).

    Raises
    ------
    ImageError
        If the encoding is not supported or the data do not fit the size.

    """
    if message.encoding not in _TO_RGB:
        raise ImageError(
            f'encoding {message.encoding!r} is not supported, use {", ".join(_TO_RGB)}')
    channels, conversion = _TO_RGB[message.encoding]
    width = message.width * channels
    if message.step < width or message.height * message.step != len(message.data) or \
            not message.height * width:
        raise ImageError(
            f'{len(message.data)} bytes do not fit {message.width} x {message.height} pixels of '
            f'{message.encoding} with step {message.step}')
    rows = np.frombuffer(message.data, dtype=np.uint8).reshape(message.height, message.step)
    pixels = rows[:, :width].reshape(message.height, message.width, channels)
    return pixels if conversion is None else cv2.cvtColor(pixels, conversion)


def to_input(rgb: Array, shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
    """
    Return an image as the model's input, shape (1, 3, height, width).

    Pixels are resized to the input's size; a floating-point input gets them
    in 0..1, an integer one as they are.
    """
    height, width = shape[-2:]
    if rgb.shape[:2] != (height, width):
        rgb = cv2.resize(rgb, (width, height), interpolation=cv2.INTER_AREA)
    tensor = torch.from_numpy(np.ascontiguousarray(rgb.transpose(2, 0, 1)))[None]
    return tensor.to(dtype) / 255 if dtype.is_floating_point else tensor.to(dtype)


def read_rgb(path: str) -> Array:
    """
    Read an image file as uint8 RGB, shape (height, width, 3).

    Raises
    ------
    ImageError
        If it is none.

    """
    pixels = cv2.imread(path, cv2.IMREAD_COLOR)
    if pixels is None:
        raise ImageError(f'{path!r} is no image file that OpenCV reads')
    return cv2.cvtColor(pixels, cv2.COLOR_BGR2RGB)


def as_map(tensor: torch.Tensor) -> torch.Tensor | None:
    """Return a (1, 1, height, width) floating-point output as a map, None if it is no such."""
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


