# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""
Edges by oriented energy: a network whose weights are formulas, so that it needs no file.

Pairs of an even and an odd filter for some scales and orientations; the energy
of a pair is the sum of squares of its answers (Morrone and Owens, Feature
detection from local energy, 1987), and an edge is where the energy of one of
them is high.  The nodes run it unless they are given another model.
"""
from __future__ import annotations

import math

import torch
from torch import nn

#: Wavelengths of the filters in pixels, and how many orientations each has.
WAVELENGTHS = (4.0, 6.0, 9.0)
ORIENTATIONS = 8
#: Pixels of a filter's side; contrast (of 1) whose energy is half of the most.
SIDE, HALF = 17, 0.1
_GREY = (0.299, 0.587, 0.114)
#: Weights are multiples of this: processors' sines and exponentials differ in the last bit.
_STEP = 2.0 ** -24


def filters() -> torch.Tensor:
    """Return the filters, odd ones behind even ones: 2 pairs x 1 x SIDE x SIDE."""
    pairs = [(wavelength, math.pi * index / ORIENTATIONS)
             for wavelength in WAVELENGTHS for index in range(ORIENTATIONS)]
    return torch.stack([_gabor(*pair, phase) for phase in (0.0, math.pi / 2) for pair in pairs])


def _gabor(wavelength: float, angle: float, phase: float) -> torch.Tensor:
    """Return a wave under a bell, without mean, whose weights' magnitudes sum to 1."""
    line = torch.arange(SIDE, dtype=torch.float64) - SIDE // 2
    y, x = torch.meshgrid(line, line, indexing='ij')
    across = x * math.cos(angle) + y * math.sin(angle)
    bell = torch.exp(-(x * x + y * y) / (2 * (0.45 * wavelength) ** 2))
    wave = torch.cos(2 * math.pi * across / wavelength + phase) * bell
    wave -= bell * wave.sum() / bell.sum()
    steps = torch.round(wave / wave.abs().sum() / _STEP) + 0.0  # no negative zeros
    return (steps * _STEP).to(torch.float32)[None]


class OrientedEnergy(nn.Module):
    """Edge detector: uint8 ``1x3xHxW`` (RGB, 0 to 255) to float32 ``1x1xHxW`` in [0, 1)."""

    grey: torch.Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer('grey', torch.tensor(_GREY).reshape(1, 3, 1, 1) / 255)
        weights = filters()
        self.answers = nn.Conv2d(1, len(weights), SIDE, padding=SIDE // 2, bias=False,
                                 padding_mode='replicate')
        self.answers.weight = nn.Parameter(weights, requires_grad=False)

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        """Return for each pixel how much of an edge it is."""
        grey = (image.to(torch.float32) * self.grey).sum(dim=1, keepdim=True)
        even, odd = self.answers(grey).chunk(2, dim=1)
        energy: torch.Tensor = (even * even + odd * odd).amax(dim=1, keepdim=True)
        return energy / (energy + HALF * HALF)


def oriented_energy() -> OrientedEnergy:
    """Return the network."""
    return OrientedEnergy().eval()
