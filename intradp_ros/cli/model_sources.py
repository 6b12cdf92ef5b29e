# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""Models as people have them: factories, TorchScript, .pt2, ONNX, timm, ultralytics."""
from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from importlib import import_module
import os
from pathlib import Path
import tempfile

from safetensors.torch import load_file
import torch
from torch import nn

from intradp_ros.cli.command_errors import CommandError
from intradp_ros.lab.zoo.pickled_weights import pickled_module, weights_of
from intradp_ros.lab.zoo.torchvision_import import torchvision
from intradp_ros.perception.card import HeadCard, InputCard, ModelCard
from intradp_ros.perception.card_sources import find_card
from intradp_ros.perception.inside import BestBoxes
from intradp_ros.runtime.catalogue import load_factory, ModelSpec, ModelSpecError

SOURCES = """\
MODEL is one of
  package.module:factory   called without arguments, returns a torch.nn.Module
  timm:NAME                an architecture of timm, with its mean, deviation and size
  model.ts, model.pt2      TorchScript, or what torch.export.save wrote
  model.onnx               by onnx2torch, if that is installed
  ultralytics:model.pt     a checkpoint of YOLOv8 or later: detection, segmentation or pose
Nothing is downloaded. Load only files that you trust: TorchScript, .pt2 and ONNX are programs."""


@dataclass(frozen=True)
class Found:
    """
    A model as it was found, and what its source says of it.

    `classes` is above 0 for detectors whose raw answers are to be chosen from inside.
    """

    model: nn.Module
    card: ModelCard = ModelCard()
    classes: int = 0
    shape: tuple[int, ...] = ()


def find_model(source: str, weights: str = '') -> Found:
    """
    Return the model that a source names, in evaluation mode.

    :param weights: a file of safetensors, or of torch with tensors alone, for a
        factory or an architecture of timm.

    Raises
    ------
    CommandError
        If there is no such model, or it cannot be loaded; the text says why.
    ModelSpecError
        If a factory fails.

    """
    scheme, _, rest = source.partition(':')
    load = _BY_SCHEME.get(scheme) if rest else _BY_ENDING.get(Path(source).suffix.lower())
    if load is None and ':' not in source:
        raise CommandError(f'{source!r} names no model: it ends in none of '
                           f'{", ".join(_BY_ENDING)}, and is no package.module:factory')
    try:
        found = load(rest or source) if load else _from_factory(source)
    except (CommandError, ModelSpecError):
        raise
    except (OSError, ValueError, RuntimeError, KeyError, AttributeError) as error:
        raise CommandError(f'cannot load {source}: {type(error).__name__}: {error}') from error
    if weights:
        _fill(found.model, weights)
    return found


def _from_factory(source: str) -> Found:
    return Found(load_factory(source), find_card(ModelSpec(source)) or ModelCard())


def _from_script(path: str) -> Found:
    model: nn.Module = torch.jit.load(path, map_location='cpu')  # type: ignore[no-untyped-call]
    return Found(model.eval())


def _from_program(path: str) -> Found:
    # The program is what it was exported as: it has no modes to switch.
    return Found(torch.export.load(path).module())


def _from_onnx(path: str) -> Found:
    try:
        torchvision()
        converter = import_module('onnx2torch')
    except ModuleNotFoundError as error:
        raise CommandError(
            f'reading ONNX needs onnx2torch ({error.name} is missing): pip install onnx2torch; '
            'or export the model with torch.export.save to a .pt2 file') from error
    try:
        return Found(converter.convert(path).eval())
    except NotImplementedError as error:
        raise CommandError(f'onnx2torch cannot convert {path}: {error}; export the model with '
                           'torch.export.save to a .pt2 file instead') from error


def _from_timm(name: str) -> Found:
    try:
        torchvision()
        timm = import_module('timm')
    except ModuleNotFoundError as error:
        raise CommandError(f'architectures of timm need it ({error.name} is missing): '
                           'pip install timm') from error
    model = timm.create_model(name, pretrained=False).eval()
    known = model.pretrained_cfg
    card = ModelCard(f'timm {name}', str(known.get('license') or ''),
                     InputCard('crop', mean=tuple(known['mean']), deviation=tuple(known['std'])),
                     HeadCard('classification', score=0.0, most=5, softmax=True))
    return Found(model, card, shape=(1, *known['input_size']))


def _from_ultralytics(path: str) -> Found:
    os.environ.setdefault('YOLO_CONFIG_DIR', tempfile.gettempdir())
    try:
        torchvision()
        tasks = import_module('ultralytics.nn.tasks')
    except ModuleNotFoundError as error:
        raise CommandError(f'checkpoints of ultralytics need it ({error.name} is missing; '
                           'AGPL-3.0): pip install ultralytics') from error
    held = pickled_module(Path(path), 'model')
    told, names = vars(held)['yaml'], _names(vars(held)['names'])
    kind = str(told['head'][-1][2])
    makers = {'Detect': 'DetectionModel', 'Segment': 'SegmentationModel', 'Pose': 'PoseModel'}
    if kind not in makers:
        raise CommandError(f'{path} has the head {kind}; there are {", ".join(makers)}')
    model: nn.Module = getattr(tasks, makers[kind])(dict(told), verbose=False)
    model.load_state_dict(weights_of(held))
    card = ModelCard(Path(path).stem, 'AGPL-3.0', InputCard('letterbox', 114),
                     HeadCard('detections', form='xywh'), labels=names)
    return Found(model.eval(), card, len(names), (1, 3, 640, 640))


def _names(told: Mapping[int, str]) -> tuple[str, ...]:
    return tuple(str(told[number]) for number in sorted(told))


def _fill(model: nn.Module, path: str) -> None:
    """Load weights; tensors alone, no code."""
    try:
        state = load_file(path) if path.endswith('.safetensors') else torch.load(
            path, weights_only=True, map_location='cpu')
        model.load_state_dict(state)
    except Exception as error:  # each format has errors of its own
        raise CommandError(f'the weights {path} do not fit: {error}') from error


def with_best_boxes(found: Found, count: int) -> Found:
    """Return a detector that chooses its best answers inside the graph."""
    return replace(found, model=BestBoxes(found.model, found.classes, count))


_BY_SCHEME: Mapping[str, Callable[[str], Found]] = {
    'timm': _from_timm, 'ultralytics': _from_ultralytics}
_BY_ENDING: Mapping[str, Callable[[str], Found]] = {
    '.ts': _from_script, '.torchscript': _from_script, '.pt2': _from_program,
    '.onnx': _from_onnx}
