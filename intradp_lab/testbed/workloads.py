# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""The networks of the evaluation: where they come from, their inputs, and their devices' times."""
from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import nn

from intradp_lab.testbed.evaluation_results import FLOAT32
from intradp_ros.runtime.models.catalogue import load_factory, ModelSpec

MEAN, SPREAD = (123.675, 116.28, 103.53), (58.395, 57.12, 57.375)


@dataclass(frozen=True)
class Workload:
    """
    One network.

    `sensor` is the dtype that its sensor gives; if `normalised`, the network
    itself takes float32 around 0, and bytes have to be scaled before.
    `recording` names the recorded operator times; without, they follow from
    `testbed.operator_costs`, and `whole_ms` is how long robot and server take
    for all of it if somebody measured that.
    """

    key: str
    title: str
    factory: str
    shape: tuple[int, ...]
    dense: bool
    sensor: torch.dtype = torch.uint8
    normalised: bool = False
    recording: str = ''
    whole_ms: tuple[float, float] | None = None

    def dtype(self, inputs: str) -> torch.dtype:
        """Return the dtype of a kind of input."""
        return torch.float32 if inputs == FLOAT32 else self.sensor

    def input_text(self, inputs: str) -> str:
        """Return shape and dtype of a kind of input as text."""
        return f'{"x".join(map(str, self.shape))} {str(self.dtype(inputs)).split(".")[1]}'

    def module(self, inputs: str) -> nn.Module:
        """Return the network for a kind of input."""
        network = load_factory(f'intradp_lab.zoo.{self.factory}')
        return Camera(network).eval() if self.normalised and inputs != FLOAT32 else network

    def example(self, inputs: str) -> torch.Tensor:
        """Return a random input."""
        return ModelSpec('', self.shape, self.dtype(inputs)).example()


class Camera(nn.Module):
    """A classifier on the bytes of a picture."""

    mean: torch.Tensor
    spread: torch.Tensor

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network
        for name, numbers in (('mean', MEAN), ('spread', SPREAD)):
            self.register_buffer(name, torch.tensor(numbers).view(1, 3, 1, 1))

    def forward(self, picture: torch.Tensor) -> torch.Tensor:
        """Take uint8 ``1x3xHxW``."""
        answers: torch.Tensor = self.network((picture.to(torch.float32) - self.mean) / self.spread)
        return answers


def _classifier(key: str, title: str, factory: str, recording: str) -> Workload:
    return Workload(key, title, f'classifiers.{factory}', (1, 3, 224, 224), False,
                    normalised=True, recording=recording)


#: The pose network's times are those of KAPAO in the authors' logs.
WORKLOADS: dict[str, Workload] = {w.key: w for w in (
    _classifier('vgg19-bn', 'VGG19_BN', 'vgg:vgg19_bn', 'vgg19_bn'),
    _classifier('densenet121', 'DenseNet121', 'densenet:densenet121', 'densenet121'),
    _classifier('regnet-x-16gf', 'RegNet_X_16GF', 'resnet:regnet_x_16gf', 'regnet_x_16gf'),
    _classifier('convnext-base', 'ConvNeXt_Base', 'convnext:convnext_base', 'convnext_base'),
    _classifier('resnet101', 'ResNet101', 'resnet:resnet101', 'resnet101'),
    _classifier('mobilenet-v3-small', 'MobileNet_V3_Small', 'mobilenet_v3:mobilenet_v3_small',
                'mobilenet_v3_small'),
    Workload('agrnav', 'scene completion, 256x32x128 as logged',
             'scene_completion:scene_completion', (1, 1, 256, 32, 128), True, torch.bool,
             recording='agrnav'),
    Workload('scene-completion', 'scene completion, 256x32x256',
             'scene_completion:scene_completion', (1, 1, 256, 32, 256), True, torch.bool,
             recording='agrnav'),
    Workload('pose', 'pose network (as KAPAO), 1280x1280', 'yolo:pose_l6', (1, 3, 1280, 1280),
             False, whole_ms=(919.0, 44.2)),
    Workload('detector', 'detector, 640x640', 'yolo:detector_s', (1, 3, 640, 640), False),
    Workload('segmenter', 'segmentation, 1024x512', 'dense:segmenter', (1, 3, 512, 1024), True),
    Workload('depth', 'monocular depth, 640x480', 'dense:depth', (1, 3, 480, 640), True))}
#: For a quick look whether all works; on devices between which sharing pays.
SMOKE = Workload('smoke', 'monocular depth, 256x192, imagined devices', 'dense:depth',
                 (1, 3, 192, 256), True, whole_ms=(120.0, 8.0))
