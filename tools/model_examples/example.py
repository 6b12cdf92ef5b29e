# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""What an example of ``intradp model add`` is, and pictures to try it on."""
from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import torch
from torch import nn
from torch.utils import _pytree as pytree

from intradp_lab.zoo.video import frames
from intradp_lab.zoo.wheel_files import wheel_file
from intradp_ros.split.checks.calibrate import calibrate

Own = Callable[[torch.Tensor], Any]
IMAGENET = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)


@dataclass(frozen=True)
class Prepared:
    """
    A model as somebody has it.

    `source` and `options` are what ``intradp model add`` is given; `own` returns
    what the original says of uint8 pixels, computed without this package.
    """

    source: str
    options: Sequence[str]
    own: Own


@dataclass(frozen=True)
class Example:
    """
    A model to add: `make` writes its files into a folder.

    `trained` says whether its weights are; `head` is the kind that its card must name.
    """

    name: str
    make: Callable[[Path], Prepared]
    head: str
    trained: bool = False


def pictures(names: Sequence[str] = ('bus', 'street', 'astronaut', 'coffee'),
             ) -> dict[str, np.ndarray[Any, Any]]:
    """Return photographs and a frame of a video, in RGB, from wheels."""
    return {name: _picture(name) for name in names}


def _picture(name: str) -> np.ndarray[Any, Any]:
    if name == 'street':
        return next(iter(frames(1)))
    if name == 'bus':
        found = cv2.imread(str(wheel_file('ultralytics', 'ultralytics/assets/bus.jpg')))
        assert found is not None
        return cv2.cvtColor(found, cv2.COLOR_BGR2RGB)
    made: np.ndarray[Any, Any] = getattr(import_module('skimage.data'), name)()
    return made


def normalised(pixels: torch.Tensor, mean: Sequence[float] = (),
               deviation: Sequence[float] = ()) -> torch.Tensor:
    """Return ``(pixel / 255 - mean) / deviation`` as one would write it by hand."""
    scaled = pixels.float() / 255
    if not mean:
        return scaled
    return (scaled - torch.tensor(mean).view(1, 3, 1, 1)) / torch.tensor(
        deviation).view(1, 3, 1, 1)


def rescale_weights(model: nn.Module, shape: Sequence[int], seed: int = 0) -> nn.Module:
    """Give a model random weights with which its outputs depend on its input."""
    torch.manual_seed(seed)
    model.eval()
    calibrate(model, (torch.randn(tuple(shape)),), seed)
    return model


def tensors(results: Any) -> list[torch.Tensor]:
    """Return the tensors in nested results."""
    return [leaf for leaf in pytree.tree_leaves(results) if isinstance(leaf, torch.Tensor)]
