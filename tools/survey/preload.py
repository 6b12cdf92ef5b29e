# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""Imports what building and splitting need, for a process that others are forked from."""
from __future__ import annotations

from contextlib import suppress
from importlib import import_module

from intradp_ros.core.torchvision_import import torchvision
import survey.measure  # noqa: F401

PACKAGES = ('timm', 'transformers', 'ultralytics.nn.tasks', 'monai.networks.nets',
            'segmentation_models_pytorch')

with suppress(ModuleNotFoundError):  # said again when one of its networks is built
    torchvision()
for package in PACKAGES:
    with suppress(ModuleNotFoundError):
        import_module(package)
