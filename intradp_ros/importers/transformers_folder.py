# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""
Vision models that `transformers` saved: a folder of configuration, weights and preprocessing.

Only classes of the library itself are made, and weights are read from
safetensors alone: nothing in the folder is run, and nothing is downloaded.
"""
from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from importlib import import_module
import inspect
import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import numpy.typing as npt
import PIL.Image
import torch
from torch import nn

from intradp_ros.core.json_text import read_json
from intradp_ros.core.limits import MAX_FILE
from intradp_ros.core.torchvision_import import torchvision
from intradp_ros.importers.found_model import Found
from intradp_ros.importers.loading_error import LoadingError
from intradp_ros.importers.measured_preprocessing import measured, PreprocessingError, scaling_of
from intradp_ros.perception.card import HeadCard, InputCard, ModelCard
from intradp_ros.perception.graph_wrappers import likeliest
from intradp_ros.perception.labels import names_by_number

Array = npt.NDArray[Any]
CONFIG, PREPROCESSING = 'config.json', 'preprocessor_config.json'
#: Where the library looks for what becomes of pictures, the first it finds.
PREPROCESSORS = (PREPROCESSING, 'processor_config.json')
#: Keys of files that say nothing of pixels, or are other names of what processors say.
_KNOWN = {'image_processor_type', 'feature_extractor_type', 'processor_class',
          'image_processor', 'reduce_labels', 'max_size', '_valid_processor_keys'}
#: Keys that say of what sizes pictures become.
_SIZES = ('size', 'size_divisor', 'ensure_multiple_of', 'pad_size')
_RESAMPLING = {'0': 'nearest', '1': 'lanczos', '2': 'bilinear', '3': 'bicubic', '4': 'box',
               '5': 'hamming', 'NEAREST': 'nearest', 'LANCZOS': 'lanczos', 'BICUBIC': 'bicubic',
               'BOX': 'box', 'HAMMING': 'hamming'}
#: Detectors whose last class stands for no object, where no processor says so.
_WITH_NO_OBJECT = ('DetrForObjectDetection', 'YolosForObjectDetection',
                   'TableTransformerForObjectDetection')
#: Ways to make detections of logits and boxes: of each box its best class, the last one standing
#: for no object; or the best pairs of box and class, this many or as many as boxes.
NO_OBJECT, _PAIRS = 'boxes or none', ('100 pairs', 'as many pairs')


class Read(nn.Module):
    """Those outputs of a model of `transformers` that a head reads, by the names it knows."""

    def __init__(self, model: nn.Module, kind: str) -> None:
        """Read outputs of a `kind` that `kind_of` returns."""
        super().__init__()
        self.model, self.kind = model, kind

    def forward(self, pixels: torch.Tensor) -> Any:
        """Return what the model says of normalised floats, 1 x 3 x height x width."""
        result = self.model(pixel_values=pixels)
        if self.kind in _PAIRS:
            return best_pairs(result.logits, result.pred_boxes, self.kind)
        if self.kind == NO_OBJECT:
            return {'logits': result.logits, 'pred_boxes': result.pred_boxes}
        if self.kind == 'depth':
            return {'depth': result.predicted_depth[:, None]}
        if self.kind == 'heat':
            return {'heat': result.heatmaps}
        if self.kind == 'labels':
            return {'labels': likeliest(nn.functional.interpolate(
                result.logits, pixels.shape[-2:], mode='bilinear', align_corners=False))}
        if self.kind == 'independent':
            return {'scores': result.logits.sigmoid()}
        return {'logits': result.logits} if self.kind == 'logits' else result


def best_pairs(logits: torch.Tensor, boxes: torch.Tensor, kind: str) -> dict[str, torch.Tensor]:
    """Return the best pairs of box (1, n, 4) and class of logits (1, n, classes)."""
    shares, classes = logits.sigmoid().flatten(1), logits.shape[2]
    scores, places = shares.topk(min(100 if kind == _PAIRS[0] else logits.shape[1],
                                     shares.shape[1]))
    chosen = places.div(classes, rounding_mode='floor')
    return {'boxes': boxes.gather(1, chosen[..., None].expand(-1, -1, 4)), 'scores': scores,
            'classes': places % classes}


def from_folder(path: str) -> Found:
    """
    Return the model of a folder, with what its configuration says.

    :raises LoadingError: if `transformers` is missing, or the folder is none of its, needs code of
        its own, or has no safetensors.
    """
    folder = Path(path)
    config = _read(folder / CONFIG)
    name = _class_name(config, path)
    library = _library()
    kind = getattr(library, name, None)
    if kind is None:
        raise LoadingError(f'transformers {library.__version__} has no {name}, which {path} asks '
                           'for; is the folder of a newer version?')
    if not [*folder.glob('*.safetensors')]:
        raise LoadingError(f'{path} has no *.safetensors: save it anew by '
                           'model.save_pretrained(FOLDER); pickled weights are not read')
    model, loaded = kind.from_pretrained(folder, local_files_only=True, use_safetensors=True,
                                         output_loading_info=True)
    lacking = [str(key) for part in ('missing_keys', 'mismatched_keys')
               for key in sorted(loaded.get(part) or (), key=str)]
    if lacking:
        raise LoadingError(f'the weights in {path} lack {len(lacking)} tensors that {name} has '
                           f'({", ".join(lacking[:3])}), they would be random')
    model.eval()
    if getattr(model, 'main_input_name', '') != 'pixel_values':
        raise LoadingError(f'{name} takes {getattr(model, "main_input_name", "no input")}, not '
                           'the pixels of an image')
    seen = _preprocessing(folder, library)
    head, read = _head(name, config, model.config, seen.boxes)
    labels = _labels(config)
    if head.kind == 'segmentation' and len(labels) == 1:
        labels = ('background', *labels)
    return Found(Read(model, read), ModelCard(
        f'{folder.name} ({name})', input=seen.card, head=head, labels=labels),
        shape=(1, 3, *seen.size) if seen.size else _shape(config), holder=model,
        notes=seen.notes, problem=seen.problem)


@dataclass(frozen=True)
class _Seen:
    """What becomes of pictures, as far as it is known; see `Found`."""

    card: InputCard
    size: tuple[int, int] | None = None
    notes: tuple[str, ...] = ()
    problem: str = ''
    boxes: str | None = None


def _preprocessing(folder: Path, library: Any) -> _Seen:
    """Return what the library's own processor does to pictures, by running it."""
    files = [folder / name for name in PREPROCESSORS if (folder / name).is_file()]
    if not files:
        return _Seen(InputCard(), notes=(
            f'{folder} has no {PREPROCESSING}: the model is taken to want pixels in 0 to 1, '
            'stretched to its form; if that is wrong say --mean, --std and --resize',))
    said = _read(files[0])
    if 'auto_map' in said:
        return _Seen(InputCard(), problem=f'{files[0]} brings code of its own (auto_map), which '
                     'is not run')
    try:
        processor = library.AutoImageProcessor.from_pretrained(
            folder, local_files_only=True, trust_remote_code=False)
        return replace(_measured(processor, said, files[0].name), boxes=way_of(processor))
    except PreprocessingError as error:
        return _Seen(InputCard(), problem=f'{files[0]}: {error}')
    except Exception as error:  # noqa: B902 - whatever the library says of its own file
        return _Seen(InputCard(), problem=f'{files[0]}: the processor of transformers stops: '
                     f'{type(error).__name__}: {" ".join(str(error).split())[:300]}')


def _measured(processor: Any, said: Mapping[str, Any], file: str) -> _Seen:
    boxed = 'boxes' in inspect.signature(processor.preprocess).parameters

    def process(picture: Array) -> torch.Tensor:
        height, width = picture.shape[:2]
        extra = {'boxes': [[[0, 0, width, height]]]} if boxed else {}
        made: torch.Tensor = processor(images=PIL.Image.fromarray(picture), return_tensors='pt',
                                       **extra)['pixel_values']
        return made

    mean, std = (_three(getattr(processor, name, None))
                       for name in ('image_mean', 'image_std'))
    kind, notes = type(processor).__name__, []
    known = {*getattr(getattr(processor, 'valid_kwargs', None), '__annotations__', ())} | _KNOWN
    if known != _KNOWN and (unknown := sorted(
            key for key, value in said.items() if value is not None and key not in known)):
        notes.append(f'{file} says {", ".join(unknown)}, which {kind} does not use')
    if boxed:
        card, size = scaling_of(process, mean, std), _run_size(process)
        return _Seen(card, size, (*notes, f'{kind} cuts a box out of the picture first, which the '
                                  'archive does not: give it what lies in the box'))
    way = str(getattr(processor, 'resample', '') or '')
    found = measured(process, mean, std, _RESAMPLING.get(way.rpartition('.')[2], 'bilinear'))
    if found.size is None:
        sizes = ', '.join(f'{key} {said[key]}' for key in _SIZES if said.get(key))
        sizes = f' ({sizes})' if sizes else ''
        notes.append(f'{kind} keeps the form of pictures{sizes}: give --input the form of the '
                     "camera's pictures, others are stretched to it")
    return _Seen(found.card, found.size, tuple(notes))


def way_of(processor: Any) -> str | None:
    """Return how a processor makes detections, by having it make some; '' of no way known here."""
    make = getattr(processor, 'post_process_object_detection', None)
    if make is None:
        return None
    chance = torch.Generator().manual_seed(0)
    logits, boxes = (torch.rand(1, 150, count, generator=chance) for count in (5, 4))
    try:
        own = make(SimpleNamespace(logits=logits, pred_boxes=boxes), threshold=0.0)[0]
        corners = torch.cat([own['boxes'][:, :2] + own['boxes'][:, 2:],
                             own['boxes'][:, 2:] - own['boxes'][:, :2]], 1) * torch.tensor(
                                 [0.5, 0.5, 1, 1])
        made = torch.cat([own['scores'][:, None], own['labels'][:, None], corners], 1)
    except Exception:  # noqa: B902 - whatever the library's own code lacks
        return ''
    sure, best = logits.softmax(2)[..., :-1].max(2)
    ways = {NO_OBJECT: {'scores': sure, 'classes': best, 'boxes': boxes},
            **{kind: best_pairs(logits, boxes, kind) for kind in _PAIRS}}
    for kind, way in ways.items():
        ours = torch.cat([way['scores'][0, :, None], way['classes'][0, :, None], way['boxes'][0]],
                         1)
        if ours.shape == made.shape and torch.allclose(
                ours[ours[:, 0].argsort()], made[made[:, 0].argsort()], atol=1e-5):
            return kind
    return ''


def _run_size(process: Callable[[Array], torch.Tensor]) -> tuple[int, int]:
    height, width = process(np.zeros((96, 128, 3), np.uint8)).shape[-2:]
    return height, width


def _three(numbers: Any) -> tuple[float, ...]:
    """Return what a processor says of each colour; one number is of all."""
    if isinstance(numbers, (int, float)):
        return (float(numbers),) * 3
    return tuple(map(float, numbers or ()))


def _read(path: Path) -> Mapping[str, Any]:
    try:
        data = read_json(path, MAX_FILE)
    except (OSError, ValueError) as error:
        raise LoadingError(f'{path}: {error}') from error
    if not isinstance(data, dict):
        raise LoadingError(f'{path} holds no JSON object')
    return data


def _class_name(config: Mapping[str, Any], path: str) -> str:
    names = config.get('architectures')
    if 'auto_map' in config:
        raise LoadingError(f'{path} brings code of its own (auto_map), which is not run; export '
                           'the model with torch.export.save to a .pt2 file instead')
    if not isinstance(names, Sequence) or isinstance(names, str) or len(names) != 1:
        raise LoadingError(f'{path}/{CONFIG} must name one class in architectures, not {names}')
    return str(names[0])


def _library() -> Any:
    os.environ.setdefault('HF_HUB_OFFLINE', '1')
    try:
        torchvision()
        library = import_module('transformers')
        library.utils.logging.disable_progress_bar()
        return library
    except ModuleNotFoundError as error:
        raise LoadingError(f'folders of transformers need it ({error.name} is missing): '
                           'pip install transformers') from error


def _head(name: str, config: Mapping[str, Any], read: Any, boxes: str | None,
          ) -> tuple[HeadCard, str]:
    """
    Return the head of a class of models, and which outputs it reads.

    `read` is the configuration as the library reads it, with its defaults, `boxes` how its
    processor makes detections (None: there is none).  Scores and boxes are
    those of the library's pipelines: several labels at once, or one, are independent of each
    other, and no box is suppressed.
    """
    if name.endswith('ForImageClassification'):
        kind, labels = getattr(read, 'problem_type', None), getattr(read, 'num_labels', 2)
        if kind == 'multi_label_classification' or labels == 1 and kind != 'regression':
            return HeadCard('classification', score_threshold=0.0, max_detections=5), 'independent'
        return HeadCard('classification', score_threshold=0.0, max_detections=5,
                        softmax=kind != 'regression'), 'logits'
    if name.endswith('ForSemanticSegmentation'):
        return HeadCard('segmentation'), 'labels'
    if name.endswith('ForObjectDetection'):
        if boxes is None:
            boxes = NO_OBJECT if name in _WITH_NO_OBJECT else _PAIRS[1]
        return (HeadCard('detections', form='xywh', relative=True, iou_threshold=1.0,
                         max_detections=getattr(read, 'num_queries', 0) or 300), boxes) \
            if boxes else (HeadCard('tensors'), '')
    if name.endswith('ForDepthEstimation') and config.get('depth_estimation_type') == 'metric':
        return HeadCard('depth'), 'depth'
    if name.endswith('ForPoseEstimation'):
        return HeadCard('key_points'), 'heat'
    return HeadCard('tensors'), ''


def _shape(config: Mapping[str, Any]) -> tuple[int, ...]:
    """Return the input's shape by the network's configuration, empty where that is silent."""
    size = config.get('image_size')
    if isinstance(size, Mapping) and {'height', 'width'} <= size.keys():
        return 1, 3, int(size['height']), int(size['width'])
    if isinstance(size, Sequence) and len(size) == 2:
        return 1, 3, int(size[0]), int(size[1])
    return (1, 3, size, size) if isinstance(size, int) else ()


def _labels(config: Mapping[str, Any]) -> tuple[str, ...]:
    held = config.get('id2label') or {}
    if not isinstance(held, Mapping) or not all(str(number).isdecimal() for number in held):
        raise LoadingError(f'id2label in {CONFIG} is not an object of numbers and names')
    return tuple(names_by_number(dict(held), f'id2label in {CONFIG}'))
