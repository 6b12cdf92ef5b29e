# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""A model's card: how a picture becomes its input, and what its outputs say."""
from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
import json
import math
from typing import Any
import warnings

from intradp_ros.core.json_text import parse_json

RESIZES = ('stretch', 'letterbox', 'crop')
COLOURS = ('rgb', 'bgr')
CROP_OFFSETS = ('rounded', 'floored')
INTERPOLATIONS = ('area', 'linear', 'nearest_exact', 'nearest', 'bilinear', 'bicubic', 'lanczos',
                  'box', 'hamming')
KINDS = ('tensors', 'detections', 'classification', 'segmentation', 'depth', 'key_points')
FORMS = ('xyxy', 'xywh')
LARGEST_CARD = 2**20
"""Bytes of JSON above which a card is refused."""
MOST_LABELS = 65_535
LONGEST_LABEL = 256
#: Of pixels in 0 to 1: what is above is of pixels in 0 to 255.
_MOST_MEAN, _MOST_STD = 2.0, 4.0
#: Names of before 0.2, which cards of users may still have, each with today's.
_RENAMED = {'fit': 'resize', 'deviation': 'std', 'score': 'score_threshold',
            'overlap': 'iou_threshold', 'most': 'max_detections'}


class CardError(ValueError):
    """A card that says what cannot be; the text says what, and how to fix it."""


@dataclass(frozen=True, slots=True)
class InputCard:
    """
    How a picture becomes the input.

    `resize` is what becomes of its form, `pad` the grey of a letterbox's borders
    (0 to 255), `interpolation` how sizes are changed: ``area`` and ``linear``
    as OpenCV does it, ``nearest_exact`` as PyTorch's, the others as
    Pillow (and torchvision with antialias).
    With a `share` below 1 the picture is made larger than the input, which
    shows this share of it, the middle; where what is cut off is odd, half of it
    is `crop_offset` (torchvision rounds to even, transformers floors).  A
    floating-point input is ``(pixel / 255 - mean) / std`` by colour;
    empty: 0 and 1.  A model of uint8 pixels does that itself.
    """

    resize: str = 'stretch'
    pad: int = 114
    colours: str = 'rgb'
    mean: tuple[float, ...] = ()
    std: tuple[float, ...] = ()
    interpolation: str = 'area'
    share: float = 1.0
    crop_offset: str = 'rounded'

    def __post_init__(self) -> None:
        _one_of('resize', self.resize, RESIZES)
        _one_of('interpolation', self.interpolation, INTERPOLATIONS)
        _one_of('crop_offset', self.crop_offset, CROP_OFFSETS)
        if not 0.01 <= self.share <= 1 or (self.share < 1 and self.resize == 'letterbox'):
            raise CardError(f'share lies in 0.01 to 1, and is 1 in a letterbox, got {self.share}')
        _one_of('colours', self.colours, COLOURS)
        if not 0 <= self.pad <= 255:
            raise CardError(f'pad is a grey of 0 to 255, got {self.pad}')
        for name, values in (('mean', self.mean), ('std', self.std)):
            if len(values) not in (0, 3) or not all(map(math.isfinite, values)):
                raise CardError(f'{name} has three finite numbers or none, got {list(values)}')
        if not all(value > 0 for value in self.std):
            raise CardError(f'std is above 0, got {list(self.std)}')
        self._check_scale()

    def _check_scale(self) -> None:
        """Refuse numbers of pixels in 0 to 255: a picture would become one grey."""
        if any(abs(value) > _MOST_MEAN for value in self.mean) or any(
                value > _MOST_STD for value in self.std):
            small = self.std and max(self.std) < 1  # of 0 to 1 already
            said = [f'{name} {",".join(f"{value / by:.6g}" for value in values)}'
                    for name, values, by in (
                        ('mean', self.mean, 255),
                        ('std', self.std or (1.0,) * 3, 1 if small else 255))
                    if values]
            raise CardError(
                f'mean {_numbers(self.mean)} and std {_numbers(self.std)} are of '
                'pixels in 0 to 255, they are taken of pixels in 0 to 1: give '
                f'{" and ".join(said)}')


@dataclass(frozen=True, slots=True)
class HeadCard:
    """
    What the outputs say.

    :param kind: one of `KINDS`; ``tensors`` if nothing but that.
    :param score_threshold: detections, classes and key points less sure than this are left out.
    :param iou_threshold: of detections of one class that overlap by more (intersection over
        union), the surest stays; 1: all do.
    :param max_detections: detections or classes at most.
    :param form: boxes as two corners (``xyxy``) or as middle and size (``xywh``).
    :param relative: whether boxes are in shares of the input, not in its pixels.
    :param softmax: whether scores of classes are logits.
    """

    kind: str = 'tensors'
    score_threshold: float = 0.25
    iou_threshold: float = 0.45
    max_detections: int = 100
    form: str = 'xyxy'
    relative: bool = False
    softmax: bool = False

    def __post_init__(self) -> None:
        _one_of('kind', self.kind, KINDS)
        _one_of('form', self.form, FORMS)
        for name, value in (('score_threshold', self.score_threshold),
                            ('iou_threshold', self.iou_threshold)):
            if not 0 <= value <= 1:
                raise CardError(f'{name} lies in 0 to 1, got {value}')
        if not 1 <= self.max_detections <= 10_000:
            raise CardError(f'max_detections lies in 1 to 10000, got {self.max_detections}')


@dataclass(frozen=True, slots=True)
class ModelCard:
    """
    A model's card.

    `outputs` names the output tensors in their order; empty: as the model
    does.  `labels` names the classes from 0 on.
    """

    name: str = ''
    licence: str = ''
    input: InputCard = field(default_factory=InputCard)
    head: HeadCard = field(default_factory=HeadCard)
    outputs: tuple[str, ...] = ()
    labels: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if len(self.labels) > MOST_LABELS:
            raise CardError(f'{len(self.labels)} labels; {MOST_LABELS} at most')
        for text in (self.name, self.licence, *self.outputs, *self.labels):
            if not isinstance(text, str) or len(text) > LONGEST_LABEL:
                raise CardError(f'a name has {LONGEST_LABEL} characters at most: {text!r:.40}')
        if self.head.kind == 'segmentation' and len(self.labels) == 1:
            raise CardError(f'a picture of one class, {self.labels[0]!r}, has two labels: name '
                            f'those of the others first, as in "background,{self.labels[0]}"')
        if len(set(self.outputs)) != len(self.outputs):
            raise CardError(f'two outputs of one name: {list(self.outputs)}')

    def label(self, number: int) -> str:
        """Return the name of a class; its number if it has none."""
        return self.labels[number] if 0 <= number < len(self.labels) else str(number)


def _numbers(values: tuple[float, ...]) -> str:
    return ','.join(f'{value:g}' for value in values) or '(none)'


def card_to_json(card: ModelCard) -> str:
    """Return a card as JSON, always the same text."""
    return json.dumps({'format': 1, **asdict(card)}, indent=1, sort_keys=True, allow_nan=False)


def card_from_json(text: str) -> ModelCard:
    """
    Return the card that a JSON text holds; what is left out is as by default.

    :raises CardError: if it holds none.
    """
    if len(text) > LARGEST_CARD:
        raise CardError(f'a card of {len(text)} bytes; {LARGEST_CARD} at most')
    try:
        document = parse_json(text)
    except ValueError as error:
        raise CardError(f'the card is not JSON: {error}') from error
    if not isinstance(document, dict) or document.pop('format', 1) != 1:
        raise CardError('the card is not a JSON object of format 1')
    parts = {name: _part(kind, document.pop(name, {}), name)
             for name, kind in (('input', InputCard), ('head', HeadCard))}
    card: ModelCard = _part(ModelCard, {**document, **parts}, 'card')
    return card


def _part(kind: type, given: Any, where: str) -> Any:
    """Return a part of a card from its JSON object, each value of its default's type."""
    if not isinstance(given, Mapping):
        raise CardError(f'{where} is not a JSON object')
    known = {f.name: getattr(kind(), f.name) for f in fields(kind)}
    if old := [name for name in given
               if _RENAMED.get(name) in known and _RENAMED[name] not in given]:
        warnings.warn(f'{where}: {", ".join(f"{name} is now {_RENAMED[name]}" for name in old)}; '
                      'the old names are still read', FutureWarning, stacklevel=3)
        given = {_RENAMED[name] if name in old else name: value for name, value in given.items()}
    if unknown := set(given) - set(known):
        raise CardError(f'{where} knows no {sorted(unknown)[0]!r:.80}; it has {", ".join(known)}')
    return kind(**{name: _value(f'{where}: {name}', value, known[name])
                   for name, value in given.items()})


def _value(name: str, value: Any, like: Any) -> Any:
    if isinstance(like, tuple) and isinstance(value, list):
        wanted = (int, float) if name.endswith(('mean', 'std')) else (str,)
        if all(isinstance(item, wanted) and not isinstance(item, bool) for item in value):
            return tuple(value)
    elif isinstance(like, float) and type(value) in (int, float):
        return float(value)
    elif type(value) is type(like):
        return value
    raise CardError(f'{name} cannot be {value!r:.80}; it is like {like!r}')


def _one_of(name: str, value: str, choices: tuple[str, ...]) -> None:
    if value not in choices:
        raise CardError(f'{name} is one of {", ".join(choices)}, got {value!r:.80}')
