# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""How the packages build their networks, always with random weights."""
from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module
import os
from typing import Any

import torch
from torch import nn

from intradp_ros.core.torchvision_import import torchvision
from survey.architectures import Architecture

Build = Callable[..., Any]


def build(architecture: Architecture, seed: int = 0) -> nn.Module:
    """
    Build a network in evaluation mode.

    Raises
    ------
    ModuleNotFoundError
        If its package is not installed.
    ValueError
        If its source is unknown.

    """
    if architecture.source not in SOURCES:
        raise ValueError(f'{architecture.name}: no source {architecture.source!r}; there are '
                         f'{", ".join(SOURCES)}')
    name, arguments = architecture.call()
    torch.manual_seed(seed)
    model: nn.Module = SOURCES[architecture.source](name, **arguments)
    return model.eval()


class DetectorHeads(nn.Module):
    """
    Backbone and heads of a torchvision detector, without anchors and box selection.

    The result holds the backbone's features and the heads' maps; of detectors
    with two stages the first stage's.
    """

    def __init__(self, detector: Any) -> None:
        super().__init__()
        self.backbone = detector.backbone
        self.head = detector.rpn.head if hasattr(detector, 'rpn') else detector.head

    def forward(self, image: torch.Tensor) -> tuple[list[torch.Tensor], Any]:
        """Return features and head maps of a normalised image."""
        features = self.backbone(image)
        maps = [features] if isinstance(features, torch.Tensor) else list(features.values())
        return maps, self.head(maps)


def _torchvision(name: str, **arguments: Any) -> Any:
    return torchvision().models.get_model(name, weights=None, **arguments)


def _detector(name: str, **arguments: Any) -> Any:
    return DetectorHeads(_torchvision(name, weights_backbone=None, **arguments))


def _timm(name: str, **arguments: Any) -> Any:
    torchvision()
    return import_module('timm').create_model(name, pretrained=False, **arguments)


def _transformers(name: str, **arguments: Any) -> Any:
    torchvision()
    os.environ.setdefault('HF_HUB_OFFLINE', '1')
    kind = getattr(import_module('transformers'), name)
    return kind(kind.config_class(**arguments))


def _ultralytics(name: str, **arguments: Any) -> Any:
    torchvision()
    tasks = import_module('ultralytics.nn.tasks')
    return getattr(tasks, name)(arguments.pop('cfg') + '.yaml', verbose=False, **arguments)


def _pytorchcv(name: str, **arguments: Any) -> Any:
    module, _, function = name.partition('.')
    return getattr(import_module(f'pytorchcv.models.{module}'), function)(**arguments)


def _monai(name: str, **arguments: Any) -> Any:
    return getattr(import_module('monai.networks.nets'), name)(**arguments)


def _smp(name: str, **arguments: Any) -> Any:
    torchvision()
    package = import_module('segmentation_models_pytorch')
    return getattr(package, name)(encoder_weights=None, **arguments)


SOURCES: Mapping[str, Build] = {
    'torchvision': _torchvision,
    'detector': _detector,
    'timm': _timm,
    'transformers': _transformers,
    'ultralytics': _ultralytics,
    'pytorchcv': _pytorchcv,
    'monai': _monai,
    'smp': _smp,
}
