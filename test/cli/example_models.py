# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""Small models that the tests of the command line name as MODEL."""
from __future__ import annotations

import torch
from torch import nn


class Dense(nn.Module):
    """Down and up again: an output as large as the input, local all the way."""

    def __init__(self) -> None:
        super().__init__()
        self.down = nn.Sequential(
            nn.Conv2d(3, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(), nn.MaxPool2d(2),
            nn.Conv2d(16, 24, 3, padding=1), nn.ReLU())
        self.up = nn.ConvTranspose2d(24, 4, 2, stride=2)
        self.skip = nn.Conv2d(3, 4, 1)

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        return torch.sigmoid(self.up(self.down(image)) + self.skip(image))


class Classifier(nn.Module):
    """Local operators, then global pooling and a linear layer."""

    def __init__(self) -> None:
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(3, 8, 3, stride=2, padding=1), nn.ReLU(), nn.Conv2d(8, 12, 3), nn.ReLU())
        self.head = nn.Linear(12, 5)

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        return self.head(self.features(image.float()).mean((2, 3)))


class Amplifier(nn.Module):
    """Makes rounding visible: whatever differs in the last bit differs altogether at the end."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.SiLU())

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        return torch.sin(1e10 * self.layers(image))


class NamedOutputs(nn.Module):
    """Returns a dict, as detectors do; one entry is not a tensor."""

    def __init__(self) -> None:
        super().__init__()
        self.heat, self.size = nn.Conv2d(3, 1, 3, padding=1), nn.Conv2d(3, 2, 1)

    def forward(self, image: torch.Tensor) -> dict[str, object]:
        return {'heat': self.heat(image), 'stride': 4, 'size': self.size(image)}


class TwoInputs(nn.Module):
    """Adds a scaled second image."""

    def forward(self, image: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
        return image + 2 * other


def dense() -> nn.Module:
    return Dense()


def classifier() -> nn.Module:
    return Classifier()


def amplifier() -> nn.Module:
    return Amplifier()


def two_inputs() -> nn.Module:
    return TwoInputs()


def constant() -> nn.Module:
    """Return a classifier whose last layer is zero, as many networks begin their training."""
    model = Classifier()
    nn.init.zeros_(model.head.weight)
    return model


def talkative() -> nn.Module:
    """Return a classifier, and print to stdout on the way."""
    print('a model may print')
    return Classifier()


def failing() -> nn.Module:
    raise RuntimeError('the weights are\nnot here')


def not_a_module() -> int:
    return 3


def named_outputs() -> nn.Module:
    return NamedOutputs()


class Net(nn.Module):
    """One convolution."""

    def __init__(self, channels: int = 3) -> None:
        super().__init__()
        self.conv = nn.Conv2d(channels, 4, 3, padding=1)

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        return self.conv(image)


class Masked(nn.Module):
    """Logits, some of which are masked, and some no numbers."""

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        masked = image.masked_fill(image > 0.7, float('-inf'))
        return torch.cat([masked, torch.log(image - 2)], 1)


class Raising(nn.Module):
    """Raises what is not an error of PyTorch."""

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        raise LookupError('a model may\nraise anything')


class Silent(nn.Module):
    """Returns nothing."""

    def forward(self, image: torch.Tensor) -> None:
        return None


def net() -> nn.Module:
    torch.manual_seed(0)
    return Net()


def grey() -> nn.Module:
    return Net(1)


def half() -> nn.Module:
    return Net().half()


def masked() -> nn.Module:
    return Masked()


def raises() -> nn.Module:
    return Raising()


def nothing_at_all() -> nn.Module:
    return Silent()


class Equal(Net):
    """A module with equality but no hash, as dataclasses have."""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Equal)


def unhashable() -> nn.Module:
    return Equal()
