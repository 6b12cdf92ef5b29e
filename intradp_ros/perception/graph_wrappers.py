# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""
What belongs into the captured graph: normalising before the model, choosing behind it.

Then uint8 crosses the link, not float32, and some rows of the best answers,
not all of them; the planner decides on which side each is done.
"""
from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import nn
from torch.utils import _pytree as pytree

from intradp_ros.perception.card import CardError

Outputs = Mapping[str, torch.Tensor]


class Normalised(nn.Module):
    """A model of ``(pixel / 255 - mean) / deviation``, so that it takes uint8 pixels."""

    shift: torch.Tensor
    scale: torch.Tensor

    def __init__(self, model: nn.Module, mean: Sequence[float] = (),
                 deviation: Sequence[float] = ()) -> None:
        """Put it before `model`; by colour, 0 and 1 if left out."""
        super().__init__()
        self.model = model
        middle = torch.tensor([*mean] or [0.0] * 3, dtype=torch.float32)
        spread = torch.tensor([*deviation] or [1.0] * 3, dtype=torch.float32)
        self.register_buffer('shift', (255 * middle).reshape(1, 3, 1, 1))
        self.register_buffer('scale', (255 * spread).reshape(1, 3, 1, 1))

    def forward(self, image: torch.Tensor) -> Any:
        """Return what the model says of an image, uint8 1 x 3 x height x width."""
        return self.model((image.to(torch.float32) - self.shift) / self.scale)


class HalfPrecision(nn.Module):
    """A model in half precision, whose floating-point inputs and outputs are single precision."""

    def __init__(self, model: nn.Module, dtype: torch.dtype, *, convert: bool = True) -> None:
        """Convert `model` itself to `dtype`, if it is not such already."""
        super().__init__()
        self.model, self.dtype = model.to(dtype) if convert else model, dtype

    def forward(self, *inputs: Any) -> Any:
        """Return what the model says."""
        return _floats_to(torch.float32, self.model(*_floats_to(self.dtype, inputs)))


def _floats_to(dtype: torch.dtype, nested: Any) -> Any:
    return pytree.tree_map_only(
        torch.Tensor, lambda t: t.to(dtype) if t.is_floating_point() else t, nested)


class BestBoxes(nn.Module):
    """
    A one-stage detector and the best of its answers.

    The model's first tensor is (1, 4 + classes + rest, n) as those of YOLOv8
    and later are: middle and size of a box, a score for each class, and the
    rest: weights of masks if a tensor of masks (1, rest, h, w) is among its
    other outputs, else x, y and sureness of key points.  The result names
    ``boxes``, ``scores``, ``classes``, and ``weights`` and ``masks``, or
    ``points``.
    """

    def __init__(self, model: nn.Module, classes: int, count: int = 100, *,
                 masks: bool = True) -> None:
        """Keep `count` answers; without `masks` what they need is left out of the graph."""
        super().__init__()
        self.model, self.classes, self.count, self.masks = model, classes, count, masks

    def forward(self, image: torch.Tensor) -> Outputs:
        """Return the best answers, the surest first."""
        found, *others = [t for t in pytree.tree_leaves(self.model(image))
                          if isinstance(t, torch.Tensor)]
        first = 4 + self.classes
        rest = found.shape[1] - first
        masks = [t for t in others if t.dim() == 4 and t.shape[1] == rest]
        scores, classes = found[:, 4:first].max(1)
        surest, places = scores.topk(min(self.count, scores.shape[1]))
        chosen = _columns(found, places)
        best = {'boxes': chosen[..., :4], 'scores': surest, 'classes': classes.gather(1, places)}
        if rest and not masks:
            best['points'] = chosen[..., first:]
        elif masks and self.masks:
            best |= {'weights': chosen[..., first:], 'masks': masks[0]}
        return best


class LikeliestClasses(nn.Module):
    """A model of logits (1, classes, h, w) and the likeliest class of each pixel: ``labels``."""

    def __init__(self, model: nn.Module, output: str = '') -> None:
        """Take the output of that name, or the first one."""
        super().__init__()
        self.model, self.output = model, output

    def forward(self, image: torch.Tensor) -> Outputs:
        """Return classes as uint8 (1, h, w); as int32 if there are more than 256."""
        outputs = self.model(image)
        if self.output:
            outputs = outputs[self.output]
        logits = next(t for t in pytree.tree_leaves(outputs) if isinstance(t, torch.Tensor))
        if logits.dim() != 4:
            raise CardError(f'logits of classes have four dimensions, got {tuple(logits.shape)}')
        return {'labels': likeliest(logits)}


def likeliest(logits: torch.Tensor) -> torch.Tensor:
    """
    Return the likeliest class of each pixel, uint8 or, if there are more than 256, int32.

    Of a single class: 1 where it is likelier than not.
    """
    if logits.shape[1] == 1:
        return (logits[:, 0] > 0).to(torch.uint8)
    return logits.argmax(1).to(torch.uint8 if logits.shape[1] <= 256 else torch.int32)


def _columns(values: torch.Tensor, places: torch.Tensor) -> torch.Tensor:
    """Return the columns at places as rows: (1, m, n) and (1, k) to (1, k, m)."""
    index = places[:, None].expand(-1, values.shape[1], -1)
    return values.gather(2, index).transpose(1, 2)
