# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""Inputs from the command line: made-up tensors by shape, and images."""
from __future__ import annotations

import argparse
from collections.abc import Sequence
from itertools import cycle
from pathlib import Path
import re

import cv2
import numpy as np
import torch

from intradp_ros.cli.command_errors import CommandError
from intradp_ros.runtime.models.catalogue import ModelSpec, ModelSpecError, parse_shape

Size = tuple[int, int]


def spatial_size(text: str) -> Size:
    """Read ``224x320`` as height and width, for argparse."""
    try:
        height, width = parse_shape(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(f'{text!r} is not a height x width such as 224x320'
                                         ) from error
    return height, width


def input_text(text: str) -> str:
    """Return the text of an input that is a shape, or the path of a file; else ValueError."""
    try:
        parse_shape(text)
    except ModelSpecError as error:
        if not Path(text).is_file():
            if re.fullmatch(r'\d+(x\d+)+', text):
                raise ValueError(str(error)) from error
            raise ValueError(f'{text!r} is neither a shape such as 1x3x224x224 nor an image '
                             'file') from error
    return text


def load_inputs(texts: Sequence[str], dtypes: Sequence[torch.dtype], size: Size | None,
                seed: int) -> tuple[torch.Tensor, ...]:
    """
    Return a tensor for each text, a shape or the path of an image; one dtype serves all.

    :raises CommandError: if there is no text, one is neither a shape nor an image, or dtypes do
        not match them.
    """
    if not texts:
        raise CommandError('the model needs an input: give --input 1x3x224x224, or an image file')
    if len(dtypes) not in (1, len(texts)):
        raise CommandError(f'{len(texts)} inputs have {len(dtypes)} dtypes: give one for each, '
                           'or one for all')
    return tuple(_load(text, dtype, size, seed + k)
                 for k, (text, dtype) in enumerate(zip(texts, cycle(dtypes))))


def random_tensor(shape: tuple[int, ...], dtype: torch.dtype, seed: int) -> torch.Tensor:
    """Return a made-up picture where the shape is that of one, else random numbers."""
    return ModelSpec('', shape, dtype).example(seed)


def _load(text: str, dtype: torch.dtype, size: Size | None, seed: int) -> torch.Tensor:
    try:
        shape = parse_shape(input_text(text))
    except ModelSpecError:
        return read_image(Path(text), dtype, size)
    except ValueError as error:
        raise CommandError(f'--input {error}') from error
    return random_tensor(shape, dtype, seed)


def read_image(path: Path, dtype: torch.dtype = torch.uint8, size: Size | None = None,
               ) -> torch.Tensor:
    """
    Read an image as a tensor ``1x3xHxW`` (RGB).

    Values go from 0 to 255 as integers, from 0 to 1 in floating point.

    :raises CommandError: if OpenCV cannot read it.
    """
    picture = cv2.imread(str(path), cv2.IMREAD_COLOR)
    if picture is None:
        raise CommandError(f'{path} is not an image that OpenCV can read')
    if size:
        picture = cv2.resize(picture, size[::-1], interpolation=cv2.INTER_AREA)
    rgb = np.ascontiguousarray(cv2.cvtColor(picture, cv2.COLOR_BGR2RGB).transpose(2, 0, 1))
    pixels = torch.from_numpy(rgb)[None]
    return pixels.to(dtype) / 255 if dtype.is_floating_point else pixels.to(dtype)
