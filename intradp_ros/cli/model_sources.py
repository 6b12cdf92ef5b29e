# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""Models as people have them: factories, files of many kinds, architectures of libraries."""
from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from importlib import import_module
import os
from pathlib import Path
import tempfile

from safetensors.torch import load_file
import torch
from torch import nn
from torch.utils import _pytree as pytree

from intradp_ros.cli.command_errors import CommandError
from intradp_ros.cli.found_model import Found
from intradp_ros.cli.onnx_file import apart, readable, settle
from intradp_ros.cli.transformers_folder import CONFIG, from_folder
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
  torchvision:NAME         one of torchvision, with the same and names of classes
  FOLDER                   what save_pretrained of transformers wrote: classification,
                           segmentation, DETR-like detection, depth, or a backbone
  model.ts, model.pt2      TorchScript, or what torch.export.save wrote
  model.onnx               by onnx2torch, if that is installed
  ultralytics:model.pt     a checkpoint of YOLOv8 or later: detection, segmentation, pose or
                           classification
Nothing is downloaded. Load only files that you trust: TorchScript, .pt2 and ONNX are programs."""

#: Classes of ultralytics, by the last layer that a checkpoint's configuration names.
_YOLO_HEADS = {'Detect': 'DetectionModel', 'Segment': 'SegmentationModel', 'Pose': 'PoseModel',
               'Classify': 'ClassificationModel'}
#: Files of weights alone, or of other runtimes, and what to do with them.
_ELSEWHERE = {
    **dict.fromkeys(('.pth', '.pt', '.safetensors', '.bin'), 'holds weights without a network: '
                    'name the network (timm:NAME, torchvision:NAME, package.module:factory) and '
                    'give the file as --weights; of a checkpoint of ultralytics write '
                    'ultralytics:FILE'),
    **dict.fromkeys(('.engine', '.plan', '.trt'), 'is an engine of TensorRT, made for one GPU; '
                    'names no model that can be divided: give what it was made from'),
    **dict.fromkeys(('.tflite', '.h5', '.keras', '.pb'), 'is a file of TensorFlow, which names '
                    'no model that is read here: convert it to ONNX (tf2onnx)')}

#: What a model converted from ONNX may differ by from the operators' definitions: rounding.
_CONVERTED = 1e-3
#: Letters of what PyTorch says of weights that do not fit: it names every one.
_MOST_TEXT = 500


def find_model(source: str, weights: str = '', shape: Sequence[int] = ()) -> Found:
    """
    Return the model that a source names, in evaluation mode.

    :param weights: a file of safetensors, or of torch with tensors alone, for a
        factory or an architecture of timm.
    :param shape: of the input, where it is told; what computes sizes from it
        (as ONNX does) then has constants.

    Raises
    ------
    CommandError
        If there is no such model, or it cannot be loaded; the text says why.
    ModelSpecError
        If a factory fails.

    """
    scheme, _, rest = source.partition(':')
    load: Callable[[str], Found] | None
    load = _BY_SCHEME.get(scheme) if rest else _by_path(Path(source))
    if load is _from_onnx:
        load = partial(_from_onnx, shape=shape)
    if load is None and Path(source).suffix.lower() in _ELSEWHERE:
        raise CommandError(f'{source} {_ELSEWHERE[Path(source).suffix.lower()]}')
    if load is None and ':' not in source:
        raise CommandError(
            f'{source!r} names no model: it ends in none of {", ".join(_BY_ENDING)}, is no folder '
            f'with a {CONFIG}, and no package.module:factory')
    try:
        found = load(rest or source) if load else _from_factory(source)
    except (CommandError, ModelSpecError):
        raise
    except (OSError, ValueError, RuntimeError, KeyError, AttributeError) as error:
        raise CommandError(f'cannot load {source}: {type(error).__name__}: {error}') from error
    if weights:
        _fill(found.holder or found.model, weights)
    return found


def _by_path(path: Path) -> Callable[[str], Found] | None:
    return from_folder if (path / CONFIG).is_file() else _BY_ENDING.get(path.suffix.lower())


def _from_factory(source: str) -> Found:
    return Found(load_factory(source), find_card(ModelSpec(source)) or ModelCard())


def _from_script(path: str) -> Found:
    model: nn.Module = torch.jit.load(path, map_location='cpu')  # type: ignore[no-untyped-call]
    return Found(model.eval())


def _from_program(path: str) -> Found:
    # The program is what it was exported as: it has no modes to switch.
    return Found(torch.export.load(path).module())


def _from_onnx(path: str, shape: Sequence[int] = ()) -> Found:
    try:
        torchvision()
        converter = import_module('onnx2torch')
    except ModuleNotFoundError as error:
        raise CommandError(
            f'reading ONNX needs onnx2torch ({error.name} is missing): pip install onnx2torch; '
            'or export the model with torch.export.save to a .pt2 file') from error
    try:
        model = settle(converter.convert(readable(path, shape)).eval())
    except NotImplementedError as error:
        raise CommandError(f'onnx2torch cannot convert {path}: {error}; export the model with '
                           'torch.export.save to a .pt2 file instead') from error
    if shape and (difference := apart(path, model, shape)) > _CONVERTED:
        raise CommandError(f'onnx2torch makes another network of {path}: outputs differ by '
                           f'{difference:.1e} of their spread from what the operators are '
                           'defined to do; export the model with torch.export.save instead')
    return Found(model)


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


def _from_torchvision(name: str) -> Found:
    try:
        models = torchvision().models
    except ModuleNotFoundError as error:
        raise CommandError(f'architectures of torchvision need it ({error.name} is missing): '
                           'pip install torchvision') from error
    task = models.get_model_builder(name).__module__.split('.')[2]
    if task in ('detection', 'video', 'optical_flow'):
        raise CommandError(f'torchvision:{name} is a network for {task.replace("_", " ")}; what '
                           'it does beside tensors (lists of images, non-maximum suppression) or '
                           'with several pictures is no graph of one image. There are '
                           'classification and segmentation; for boxes take a YOLO or DETR')
    model = models.get_model(name, weights=None, **_without_backbone(name)).eval()
    known = models.get_model_weights(name).DEFAULT
    told, names = known.transforms(), tuple(known.meta.get('categories', ()))
    dense = 'segmentation' in model.__module__
    size = getattr(told, 'crop_size', None) or getattr(told, 'resize_size', None) or [224]
    card = ModelCard(
        f'torchvision {name}',
        input=InputCard('stretch' if dense else 'crop', mean=tuple(getattr(told, 'mean', ())),
                        deviation=tuple(getattr(told, 'std', ()))),
        head=HeadCard('segmentation') if dense else HeadCard(
            'classification', score=0.0, most=5, softmax=True), labels=names)
    return Found(FirstOutput(model) if dense else model, card,
                 shape=(1, 3, int(size[0]), int(size[-1])), holder=model)


def _without_backbone(name: str) -> dict[str, None]:
    """Return options that keep a network from loading the weights of its backbone."""
    dense = ('deeplab', 'fcn', 'lraspp')
    return {'weights_backbone': None} if name.startswith(dense) else {}


class FirstOutput(nn.Module):
    """The first output of a model of several: what is not read need not be computed."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        """Return the first output."""
        first: torch.Tensor = next(leaf for leaf in pytree.tree_leaves(self.model(image))
                                   if isinstance(leaf, torch.Tensor))
        return first


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
    if kind not in _YOLO_HEADS:
        raise CommandError(f'{path} has the head {kind}; there are {", ".join(_YOLO_HEADS)}')
    model: nn.Module = getattr(tasks, _YOLO_HEADS[kind])(dict(told), verbose=False)
    model.load_state_dict(weights_of(held))
    model.eval()
    if kind == 'Classify':
        head = HeadCard('classification', score=0.0, most=5)
        return Found(FirstOutput(model), ModelCard(
            Path(path).stem, 'AGPL-3.0', InputCard('crop'), head, labels=names),
            shape=(1, 3, 224, 224))
    card = ModelCard(Path(path).stem, 'AGPL-3.0', InputCard('letterbox', 114),
                     HeadCard('detections', form='xywh'), labels=names)
    return Found(model, card, len(names), (1, 3, 640, 640))


def _names(told: Mapping[int, str]) -> tuple[str, ...]:
    return tuple(str(told[number]) for number in sorted(told))


def _fill(model: nn.Module, path: str) -> None:
    """Load weights; tensors alone, no code."""
    try:
        state = load_file(path) if path.endswith('.safetensors') else torch.load(
            path, weights_only=True, map_location='cpu')
        model.load_state_dict(state)
    except Exception as error:  # each format has errors of its own
        raise CommandError(f'the weights {path} do not fit: {str(error)[:_MOST_TEXT]}') from error


def with_best_boxes(found: Found, count: int) -> Found:
    """Return a detector that chooses its best answers inside the graph."""
    return replace(found, model=BestBoxes(found.model, found.classes, count))


_BY_SCHEME: Mapping[str, Callable[[str], Found]] = {
    'timm': _from_timm, 'torchvision': _from_torchvision, 'ultralytics': _from_ultralytics}
_BY_ENDING: Mapping[str, Callable[[str], Found]] = {
    '.ts': _from_script, '.torchscript': _from_script, '.pt2': _from_program,
    '.onnx': _from_onnx}
