# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""Models as people have them: factories, files of many kinds, architectures of libraries."""
from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
import hashlib
from importlib import import_module
import os
from pathlib import Path
import re
import tempfile
from typing import Any, cast

import PIL.Image
import torch
from torch import nn
from torch.utils import _pytree as pytree

from intradp_ros.core.torchvision_import import torchvision
from intradp_ros.importers.checkpoints import checkpoint_module, classes_in, state_of
from intradp_ros.importers.file_kinds import check_program, Kind, kind_of
from intradp_ros.importers.found_model import Found
from intradp_ros.importers.loading_error import LoadingError
from intradp_ros.importers.measured_preprocessing import measured, PreprocessingError
from intradp_ros.importers.onnx_file import converted, open_onnx
from intradp_ros.importers.pickled_weights import weights_of
from intradp_ros.importers.picture_input import picture_shape
from intradp_ros.importers.transformers_folder import CONFIG, from_folder
from intradp_ros.perception.card import HeadCard, InputCard, ModelCard
from intradp_ros.perception.card_sources import find_card
from intradp_ros.perception.graph_wrappers import BestBoxes, HalfPrecision
from intradp_ros.perception.labels import names_by_number
from intradp_ros.runtime.models.catalogue import load_factory, ModelSpec, ModelSpecError

SOURCES = """\
MODEL is one of
  package.module:factory   called without arguments, returns a torch.nn.Module
  timm:NAME                an architecture of timm, with its mean, std and size
  torchvision:NAME         one of torchvision, with the same and names of classes
  FOLDER                   what save_pretrained of transformers wrote: classification,
                           segmentation, DETR-like detection, depth, or a backbone; what
                           becomes of pixels is measured on the library's own processor
  model.ts, model.pt2      TorchScript, or what torch.export.save wrote
  model.onnx               by onnx2torch, if that is installed
  ultralytics:model.pt     a checkpoint of YOLOv8 or later: detection, segmentation, pose or
                           classification
Files are known by what they hold, whatever they are called. Nothing is downloaded, and no pickle
is run: of a checkpoint only tensors are read (--weights). Load only files that you trust:
TorchScript, .pt2 and ONNX are programs."""

#: Classes of ultralytics, by the last layer that a checkpoint's configuration names.
_YOLO_HEADS = {'Detect': 'DetectionModel', 'Segment': 'SegmentationModel', 'Pose': 'PoseModel',
               'Classify': 'ClassificationModel'}
#: Endings of other runtimes' files, and what to do with them.
_ELSEWHERE = {
    **dict.fromkeys(('.engine', '.plan', '.trt'), 'is an engine of TensorRT, made for one GPU; '
                    'names no model that can be divided: give what it was made from'),
    **dict.fromkeys(('.tflite', '.h5', '.keras', '.pb'), 'is a file of TensorFlow, which names '
                    'no model that is read here: convert it to ONNX (tf2onnx)')}
_NETWORK = ('name the network (timm:NAME, torchvision:NAME, package.module:factory) and give the '
            'file as --weights')

#: Other endings of names that can only be those of files.
_OF_FILES = ('.pt', '.pth', '.ckpt', '.bin', '.pkl', '.safetensors', '.graph', '.zip')
#: What wrappers of a model put before the names of its weights.
_BEFORE = ('', 'module.', '_orig_mod.', 'model.', 'module.model.', '_orig_mod.module.')
#: Letters of what PyTorch says of weights that do not fit: it names every one.
_MOST_TEXT = 500


def find_model(source: str, weights: str = '', shape: Sequence[int] = ()) -> Found:
    """
    Return the model that a source names, in evaluation mode.

    :param weights: a file of safetensors, or of torch, for a factory or an
        architecture of timm.
    :param shape: of the input, where it is given; what computes sizes from it
        (as ONNX does) then has constants.
    :raises LoadingError: if there is no such model, or it cannot be loaded; the text says why.
    :raises ModelSpecError: if a factory fails.
    """
    scheme, _, rest = source.partition(':')
    try:
        if rest and scheme == 'torchvision':
            found = _from_torchvision(rest, weights)
        elif rest and scheme in _BY_SCHEME:
            found = _BY_SCHEME[scheme](rest)
        elif rest.startswith('//'):
            raise LoadingError(f'{source} is an address: download what is there, and give the '
                               'file')
        elif rest and not Path(source).exists():
            found = Found(load_factory(source), find_card(ModelSpec(source)) or ModelCard())
        else:
            found = _from_path(source, shape)
    except (LoadingError, ModelSpecError):
        raise
    except Exception as error:  # whatever a library says of a file or name that it cannot use
        raise LoadingError(f'cannot load {source}: {cause_of(error)}') from error
    if weights and scheme != 'torchvision':
        _fill(found.holder or found.model, weights)
    elif not weights and scheme in _WITHOUT_WEIGHTS:
        found = replace(found, notes=(*found.notes, f'no --weights: the parameters of {source} '
                                      'are random, its answers mean nothing'))
    return _in_its_precision(found)


def cause_of(error: Exception) -> str:
    """Return what an error of a library says, in one line."""
    lines = [line.strip() for line in str(error).splitlines()]
    said = next((line for line in lines if line), '')
    if said.endswith(':'):
        said = ' '.join(line for line in lines if line)
    return f'{type(error).__name__}: {said[:_MOST_TEXT]}' if said else type(error).__name__


def _from_path(source: str, shape: Sequence[int]) -> Found:
    path = Path(source)
    if (path / CONFIG).is_file():
        return from_folder(source)
    ending = path.suffix.lower()
    if not path.exists():
        if path.is_symlink():
            raise LoadingError(f'cannot load {source}: it is a link to {os.readlink(path)!r}, '
                               'which is not there')
        if ending in _ELSEWHERE:
            raise LoadingError(f'{source} {_ELSEWHERE[ending]}')
        if ending in _ENDINGS or ending in _OF_FILES or '/' in source:
            raise LoadingError(f'cannot load {source}: there is no such file')
        raise LoadingError(
            f'{source!r} names no model: it ends in none of {", ".join(_ENDINGS)}, is not a '
            f'folder with a {CONFIG}, and no package.module:factory')
    kind = kind_of(path)
    if kind is Kind.SCRIPT:
        return _from_script(source)
    if kind is Kind.PROGRAM:
        return _from_program(source)
    if kind is Kind.CHECKPOINT:
        raise LoadingError(f'{source} {_of_checkpoint(path)}')
    if kind is Kind.SAFETENSORS:
        raise LoadingError(f'{source} holds weights without a network: {_NETWORK}')
    if kind is Kind.ARCHIVE:
        raise LoadingError(f'{source} {kind.value}: intradp model show {source}')
    if kind is Kind.OTHER and ending == '.onnx':
        return _from_onnx(source, shape)
    if kind is Kind.OTHER and ending in _ELSEWHERE:
        raise LoadingError(f'{source} {_ELSEWHERE[ending]}')
    raise LoadingError(f'{source} names no model: it {kind.value}' + (
        '; an ONNX file ends in .onnx' if kind is Kind.OTHER else ''))


def _of_checkpoint(path: Path) -> str:
    """Return what a file of torch.save holds, and what to do with it."""
    names = classes_in(path)
    if any(name.startswith('ultralytics.') for name in names):
        return f'is a checkpoint of ultralytics: write ultralytics:{path}'
    if names:
        return (f'holds objects of {", ".join(names[:3])}: loading a whole pickled module would '
                f'run code of the file, which is not done; {_NETWORK} (weights are read from it), '
                'or export it with torch.export.save')
    return f'holds weights without a network: {_NETWORK}'


def _from_script(path: str) -> Found:
    with open(path, 'rb') as file:  # names that are not UTF-8 PyTorch does not take
        model: Any = torch.jit.load(file, map_location='cpu')  # type: ignore[no-untyped-call]
    count = len([*model.graph.inputs()]) - 1  # the first is the module itself
    if count != 1:
        raise LoadingError(f'{path} takes {count} inputs; an archive is made of models of one '
                           'picture')
    return Found(model.eval())


def _from_program(path: str) -> Found:
    check_program(Path(path))
    os.environ['TORCH_FORCE_WEIGHTS_ONLY_LOAD'] = '1'
    try:
        program = torch.export.load(path)
    finally:
        del os.environ['TORCH_FORCE_WEIGHTS_ONLY_LOAD']
    values = {node.name: node.meta.get('val') for node in program.graph.nodes
              if node.op == 'placeholder'}
    taken = [values.get(str(name)) for name in program.graph_signature.user_inputs]
    if len(taken) != 1 or not isinstance(taken[0], torch.Tensor):
        raise LoadingError(f'{path} takes {len(taken)} inputs; an archive is made of models of '
                           'one picture')
    said = tuple(n if isinstance(n, int) else 0 for n in taken[0].shape)
    # The program is what it was exported as: it has no modes to switch.
    return Found(program.module(), shape=said, dtype=taken[0].dtype)


def _library(module: str, lacking: str) -> Any:
    """Return a module that needs torchvision; LoadingError names in `lacking` what is missing."""
    try:
        torchvision()
        return import_module(module)
    except ModuleNotFoundError as error:
        raise LoadingError(lacking.format(error.name)) from error


def _from_onnx(path: str, shape: Sequence[int] = ()) -> Found:
    _library('onnx2torch', 'reading ONNX needs onnx2torch ({} is missing): pip install '
             'onnx2torch; or export the model with torch.export.save to a .pt2 file')
    file = open_onnx(path)
    whole = picture_shape(path, file.shape, shape)
    return Found(converted(file, whole), shape=file.shape, dtype=file.dtype)


def _in_its_precision(found: Found) -> Found:
    """Return a model that takes single precision or pixels, as the commands do."""
    dtype = found.dtype or _precision(found.model)
    if dtype in (torch.float32, torch.uint8):
        return replace(found, dtype=dtype)
    if not dtype.is_floating_point:
        raise LoadingError(f'the model takes {str(dtype).removeprefix("torch.")}; pictures are '
                           'floating-point numbers or uint8')
    return replace(found, model=HalfPrecision(found.model, dtype, convert=False),
                   holder=found.holder or found.model, dtype=torch.float32)


def _precision(model: nn.Module) -> torch.dtype:
    """Return the precision of a model's parameters if it is one, else float32."""
    kinds = {p.dtype for p in model.parameters() if p.is_floating_point()}
    return kinds.pop() if len(kinds) == 1 else torch.float32


def _from_timm(name: str) -> Found:
    timm = _library('timm', 'architectures of timm need it ({} is missing): pip install timm')
    model = timm.create_model(name, pretrained=False).eval()
    known = timm.data.resolve_model_data_config(model)
    steps = timm.data.create_transform(**known, is_training=False)
    card, size, problem = _as_library(steps, known['mean'], known['std'])
    return Found(model, ModelCard(
        f'timm {name}', str(model.pretrained_cfg.get('license') or ''), card,
        HeadCard('classification', score_threshold=0.0, max_detections=5, softmax=True)),
        shape=(1, 3, *size) if size else (1, *known['input_size']), problem=problem)


def _as_library(steps: Callable[[Any], torch.Tensor], mean: Sequence[float],
                std: Sequence[float]) -> tuple[InputCard, tuple[int, int] | None, str]:
    """Return card and size of what a library's steps do to pictures, and what it lacks."""
    try:
        found = measured(lambda picture: steps(PIL.Image.fromarray(picture))[None], mean,
                         std)
    except PreprocessingError as error:
        return InputCard(), None, f'the preprocessing that belongs to it: {error}'
    return found.card, found.size, ''


def _from_torchvision(name: str, weights: str) -> Found:
    models = _library('torchvision.models', 'architectures of torchvision need it ({} is '
                      'missing): pip install torchvision')
    task = models.get_model_builder(name).__module__.split('.')[2]
    if task in ('detection', 'video', 'optical_flow'):
        raise LoadingError(f'torchvision:{name} is a network for {task.replace("_", " ")}; what '
                           'it does without tensors (lists of images, non-maximum suppression) or '
                           'with several pictures is not a graph of one image. There are '
                           'classification and segmentation; for boxes take a YOLO or DETR')
    known = _published(models.get_model_weights(name), weights)
    model = _torchvision_model(models, name, known, weights).eval()
    steps, names = known.transforms(), tuple(known.meta.get('categories', ()))
    dense = 'segmentation' in model.__module__
    size = getattr(steps, 'crop_size', None) or getattr(steps, 'resize_size', None) or [224]
    seen, _, problem = _as_library(steps, getattr(steps, 'mean', ()), getattr(steps, 'std', ()))
    card = ModelCard(
        f'torchvision {name}', input=seen,
        head=HeadCard('segmentation') if dense else HeadCard(
            'classification', score_threshold=0.0, max_detections=5, softmax=True), labels=names)
    notes = ('transform_input is on, as torchvision has it with its weights: for a network that '
             'was trained without, name package.module:factory',) \
        if weights and getattr(model, 'transform_input', False) else ()
    return Found(FirstOutput(model) if dense else model, card, notes=notes,
                 shape=(1, 3, int(size[0]), int(size[-1])), holder=model, problem=problem)


def _published(entries: Any, weights: str) -> Any:
    """Return which of torchvision's weights a file is (its name has their digest), or the best."""
    if weights and Path(weights).is_file():
        digest = hashlib.sha256(Path(weights).read_bytes()).hexdigest()
        for entry in entries:
            if re.search(rf'-{digest[:8]}\b', entry.url):
                return entry
    return entries.DEFAULT


#: Other ways in which networks of torchvision are built and saved, each tried where weights do
#: not fit: with the second head that is for training only, or without.
_BUILT: tuple[Mapping[str, Any], ...] = (
    {}, {'aux_loss': True}, {'aux_logits': False, 'transform_input': True},
    {'aux_logits': False})


def _torchvision_model(models: Any, name: str, known: Any, weights: str) -> nn.Module:
    """Return a network with weights of a file, as the library builds it with its own."""
    plain = _without_backbone(name)
    if not weights:
        return cast(nn.Module, models.get_model(name, weights=None, **plain))
    state = state_of(Path(weights))
    try:
        with _in_place_of_download(type(known), state):
            return cast(nn.Module, models.get_model(name, weights=known))
    except RuntimeError:  # tensors are missing, or of other shapes
        pass
    for options in _BUILT:
        try:
            model = models.get_model(name, weights=None, **plain, **options)
        except TypeError:  # a network without such a head
            continue
        if model.state_dict().keys() in ({n.removeprefix(before) for n in state}
                                         for before in _BEFORE):
            break
    else:
        model = models.get_model(name, weights=None, **plain)
    _fill(model, weights)
    return cast(nn.Module, model)


@contextmanager
def _in_place_of_download(kind: Any, state: Mapping[str, torch.Tensor]) -> Iterator[None]:
    """Let weights of torchvision be those that are here."""
    download = kind.get_state_dict
    kind.get_state_dict = lambda *args, **kwargs: state
    try:
        yield
    finally:
        kind.get_state_dict = download


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
    tasks = _library('ultralytics.nn.tasks', 'checkpoints of ultralytics need it ({} is missing; '
                     'AGPL-3.0): pip install ultralytics')
    held = checkpoint_module(Path(path))
    structure, names = vars(held)['yaml'], names_by_number(
        dict(vars(held).get('names') or {}), path)
    try:
        kind = str(structure['head'][-1][2])
    except (KeyError, IndexError, TypeError) as error:
        raise LoadingError(f'{path} does not say which head it has: is it of YOLOv8 or later?'
                           ) from error
    if kind not in _YOLO_HEADS:
        raise LoadingError(f'{path} has the head {kind}; there are {", ".join(_YOLO_HEADS)}')
    model: nn.Module = getattr(tasks, _YOLO_HEADS[kind])(dict(structure), verbose=False)
    model.load_state_dict(weights_of(held))
    model.eval()
    if kind == 'Classify':
        head = HeadCard('classification', score_threshold=0.0, max_detections=5)
        return Found(FirstOutput(model), ModelCard(
            Path(path).stem, 'AGPL-3.0', InputCard('crop', interpolation='bilinear'),
            head, labels=tuple(names)), shape=(1, 3, 224, 224))
    seen = InputCard('letterbox', 114, interpolation='linear')  # as its LetterBox
    card = ModelCard(Path(path).stem, 'AGPL-3.0', seen,
                     HeadCard('detections', form='xywh'), labels=tuple(names))
    return Found(model, card, len(names), (1, 3, 640, 640))


#: What averaging and counting of operations leave in addition to weights.
_COUNTS = ('n_averaged', 'total_ops', 'total_params')


def _fill(model: nn.Module, path: str) -> None:
    """Load weights; tensors alone, no code."""
    state, wanted = state_of(Path(path)), model.state_dict().keys()
    for before in _BEFORE:
        inner = {name.removeprefix(before): x for name, x in state.items()}
        if inner.keys() >= wanted:
            state = inner
            break
    own = model.state_dict()
    state = {name: x for name, x in state.items()
             if name in own or name.rpartition('.')[2] not in _COUNTS}
    for name in state.keys() & own.keys():
        if own[name].is_floating_point() and not state[name].is_floating_point():
            raise LoadingError(
                f'the weights {path} do not fit: {name} is of {str(state[name].dtype)[6:]}, the '
                'network computes with floating-point numbers (are they quantised?)')
    try:
        model.load_state_dict(state)
    except RuntimeError as error:
        raise LoadingError(f'the weights {path} do not fit: {str(error)[:_MOST_TEXT]}') from error


def with_best_boxes(found: Found, count: int) -> Found:
    """Return a detector that chooses its best answers inside the graph."""
    return replace(found, model=BestBoxes(found.model, found.classes, count))


_BY_SCHEME: Mapping[str, Callable[[str], Found]] = {
    'timm': _from_timm, 'ultralytics': _from_ultralytics}
#: Sources of architectures alone.
_WITHOUT_WEIGHTS = ('timm', 'torchvision')
_ENDINGS = ('.ts', '.torchscript', '.pt2', '.onnx')
