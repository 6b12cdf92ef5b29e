# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""
Vision models that `transformers` saved: a folder of configuration, weights and preprocessing.

Only classes of the library itself are made, and weights are read from
safetensors alone: nothing in the folder is run, and nothing is downloaded.
"""
from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib import import_module
import json
import os
from pathlib import Path
from typing import Any

import torch
from torch import nn

from intradp_ros.cli.command_errors import CommandError
from intradp_ros.cli.found_model import Found
from intradp_ros.core.torchvision_import import torchvision
from intradp_ros.perception.card import HeadCard, InputCard, ModelCard

CONFIG, PREPROCESSING = 'config.json', 'preprocessor_config.json'
#: Detectors whose last class stands for no object; the others' classes stand for themselves.
_WITH_NO_OBJECT = ('DetrForObjectDetection', 'YolosForObjectDetection',
                   'TableTransformerForObjectDetection')


class Read(nn.Module):
    """Those outputs of a model of `transformers` that a head reads, by the names it knows."""

    def __init__(self, model: nn.Module, kind: str) -> None:
        """Read outputs of a `kind` that `kind_of` returns."""
        super().__init__()
        self.model, self.kind = model, kind

    def forward(self, pixels: torch.Tensor) -> Any:
        """Return what the model says of normalised floats, 1 x 3 x height x width."""
        told = self.model(pixel_values=pixels)
        if self.kind == 'boxes':
            return {'boxes': told.pred_boxes, 'scores': told.logits.sigmoid()}
        if self.kind == 'boxes or none':
            return {'logits': told.logits, 'pred_boxes': told.pred_boxes}
        if self.kind == 'depth':
            return {'depth': told.predicted_depth[:, None]}
        if self.kind == 'heat':
            return {'heat': told.heatmaps}
        return {'logits': told.logits} if self.kind == 'logits' else told


def from_folder(path: str) -> Found:
    """
    Return the model of a folder, with what its configuration tells.

    Raises
    ------
    CommandError
        If `transformers` is missing, or the folder is none of its, needs code of
        its own, or has no safetensors.

    """
    folder = Path(path)
    config = _read(folder / CONFIG)
    name = _class_name(config, path)
    library = _library()
    kind = getattr(library, name, None)
    if kind is None:
        raise CommandError(f'transformers {library.__version__} has no {name}, which {path} asks '
                           'for; is the folder of a newer version?')
    if not [*folder.glob('*.safetensors')]:
        raise CommandError(f'{path} has no *.safetensors: save it anew by '
                           'model.save_pretrained(FOLDER); pickled weights are not read')
    model = kind.from_pretrained(folder, local_files_only=True, use_safetensors=True).eval()
    if getattr(model, 'main_input_name', '') != 'pixel_values':
        raise CommandError(f'{name} takes {getattr(model, "main_input_name", "no input")}, not '
                           'the pixels of an image')
    preprocessing = _read(folder / PREPROCESSING) if (folder / PREPROCESSING).is_file() else {}
    head, read = _head(name, config)
    return Found(Read(model, read), ModelCard(
        f'{folder.name} ({name})', input=_input(preprocessing), head=head,
        labels=_labels(config)), shape=_shape(preprocessing, config), holder=model)


def _read(path: Path) -> Mapping[str, Any]:
    try:
        data = json.loads(path.read_text())
    except (OSError, ValueError) as error:
        raise CommandError(f'{path}: {error}') from error
    if not isinstance(data, dict):
        raise CommandError(f'{path} holds no JSON object')
    return data


def _class_name(config: Mapping[str, Any], path: str) -> str:
    names = config.get('architectures')
    if 'auto_map' in config:
        raise CommandError(f'{path} brings code of its own (auto_map), which is not run; export '
                           'the model with torch.export.save to a .pt2 file instead')
    if not isinstance(names, Sequence) or isinstance(names, str) or len(names) != 1:
        raise CommandError(f'{path}/{CONFIG} must name one class in architectures, not {names}')
    return str(names[0])


def _library() -> Any:
    os.environ.setdefault('HF_HUB_OFFLINE', '1')
    try:
        torchvision()
        return import_module('transformers')
    except ModuleNotFoundError as error:
        raise CommandError(f'folders of transformers need it ({error.name} is missing): '
                           'pip install transformers') from error


def _head(name: str, config: Mapping[str, Any]) -> tuple[HeadCard, str]:
    """Return the head of a class of models, and which outputs it reads."""
    if name.endswith('ForImageClassification'):
        return HeadCard('classification', score=0.0, most=5, softmax=True), 'logits'
    if name.endswith('ForSemanticSegmentation'):
        return HeadCard('segmentation'), 'logits'
    if name.endswith('ForObjectDetection'):
        read = 'boxes or none' if name in _WITH_NO_OBJECT else 'boxes'
        return HeadCard('detections', form='xywh', relative=True), read
    if name.endswith('ForDepthEstimation') and config.get('depth_estimation_type') == 'metric':
        return HeadCard('depth'), 'depth'
    if name.endswith('ForPoseEstimation'):
        return HeadCard('key_points'), 'heat'
    return HeadCard('tensors'), ''


def _input(told: Mapping[str, Any]) -> InputCard:
    if not told.get('do_normalize', bool(told.get('image_mean'))):
        return InputCard()
    return InputCard('crop' if told.get('do_center_crop') else 'stretch',
                     mean=tuple(map(float, told.get('image_mean', ()))),
                     deviation=tuple(map(float, told.get('image_std', ()))))


def _shape(told: Mapping[str, Any], config: Mapping[str, Any]) -> tuple[int, ...]:
    """Return the input's shape, empty where nothing tells it."""
    for size in (told.get('crop_size') if told.get('do_center_crop') else None, told.get('size'),
                 config.get('image_size')):
        if isinstance(size, Mapping) and {'height', 'width'} <= size.keys():
            return 1, 3, int(size['height']), int(size['width'])
        if isinstance(size, Sequence) and len(size) == 2:
            return 1, 3, int(size[0]), int(size[1])
        if isinstance(size, int):
            return 1, 3, size, size
    return ()


def _labels(config: Mapping[str, Any]) -> tuple[str, ...]:
    told = config.get('id2label') or {}
    return tuple(str(told[number]) for number in sorted(told, key=int))
