# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""What an ONNX file computes by the operators' definitions, as `onnx.reference` evaluates them."""
from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from importlib import import_module
import math
from typing import Any

import numpy as np
import torch
from torch import fx, nn

from intradp_ros.importers.differences import apart
from intradp_ros.importers.onnx_resize import DOMAIN, Resize, resized

#: The set of operators in which batch norms say whether they are in training.
_BATCH_NORM = 15
#: The set in which a Resize says how it places coordinates; before, it has one way.
_RESIZE = 11
RESAMPLE = 'Resample'


class NoEvaluationError(ValueError):
    """`onnx.reference` cannot evaluate the file; the text says why."""


def evaluator(model: Any) -> Any:
    """
    Return what evaluates a model.

    Old batch norms, which `onnx.reference` takes for ones in training, are
    brought to newer ones first; where it departs from the definition
    (``_corrected``) its operators are replaced.
    """
    copy = type(model).FromString(model.SerializeToString())
    oldest = min((s.version for s in copy.opset_import if s.domain in ('', 'ai.onnx')),
                 default=_BATCH_NORM)
    if oldest < _RESIZE:
        old_resizes(copy)
    if oldest < _BATCH_NORM:
        copy = import_module('onnx.version_converter').convert_version(copy, _BATCH_NORM)
    return import_module('onnx.reference').ReferenceEvaluator(copy, new_ops=[*_corrected()])


def old_resizes(model: Any) -> None:
    """Name Upsample, and Resize before opset 11, what newer sets of operators do not redefine."""
    onnx: Any = import_module('onnx')
    for node in model.graph.node:
        if node.op_type not in ('Upsample', 'Resize') or node.domain not in ('', 'ai.onnx'):
            continue
        for attribute in [a for a in node.attribute if a.name == 'scales']:  # of Upsample-7
            name = f'{node.output[0]} scales'
            model.graph.initializer.append(onnx.numpy_helper.from_array(
                np.array(attribute.floats, np.float32), name))
            node.input.append(name)
            node.attribute.remove(attribute)
        node.op_type, node.domain = RESAMPLE, DOMAIN
    with_domain(model)


def with_domain(model: Any) -> None:
    """Let a model use operators of `DOMAIN`."""
    if DOMAIN not in {opset.domain for opset in model.opset_import}:
        model.opset_import.append(import_module('onnx').helper.make_opsetid(DOMAIN, 1))


@cache
def _corrected() -> tuple[type, ...]:
    """Return operators of `onnx.reference` (1.23) as they are defined."""
    run: Any = import_module('onnx.reference.op_run').OpRun

    class LRN(run):  # type: ignore[misc]
        """Sums over neighbouring channels; the package visits as many as there are samples."""

        op_domain = ''

        def _run(self, x: Any, alpha: float = 1e-4, beta: float = 0.75, bias: float = 1.0,
                 size: int = 1) -> tuple[Any]:
            before, after = math.floor((size - 1) / 2), math.ceil((size - 1) / 2)
            padded = np.pad(x ** 2, [(0, 0), (before, after)] + [(0, 0)] * (x.ndim - 2))
            total = sum(padded[:, n:n + x.shape[1]] for n in range(size))
            return ((x / (bias + alpha / size * total) ** beta).astype(x.dtype),)

    class OfOurs(run):  # type: ignore[misc]
        """
        Resize as we define it, so that both round coordinates alike.

        The package's own takes a length after a resize that is not a whole number.
        """

        op_domain = ''

        def _run(self, x: Any, roi: Any = None, scales: Any = None, sizes: Any = None,
                 **said: Any) -> tuple[Any]:
            inputs = {'roi': roi, 'scales': scales, 'sizes': sizes}
            numbers: dict[str, Any] = {name: tuple(np.asarray(held).ravel().tolist())
                                       for name, held in inputs.items() if held is not None}
            given = {key: value for key, value in said.items() if value is not None}
            resize = Resize(x.shape, **numbers, **{**given, 'axes': tuple(given.get('axes', ()))})
            floating = np.issubdtype(x.dtype, np.floating)
            return (resized(resize, floating=floating)(torch.from_numpy(x)).numpy(),)

    OfOurs.__name__ = 'Resize'

    class Resample(OfOurs):
        """Upsample, and Resize before opset 11: by floor, from the first element on."""

        op_domain = DOMAIN

        def _run(self, x: Any, *inputs: Any, **said: Any) -> tuple[Any]:
            return super()._run(x, None, *inputs, mode=said.get('mode', 'nearest'),
                                nearest_mode='floor', coordinate_transformation_mode='asymmetric')

    return LRN, OfOurs, Resample


def difference(model: Any, converted: nn.Module, noise: torch.Tensor) -> float:
    """
    Return how far a converted model is from what the operators' definitions say.

    Of some input, by the greatest spread among the outputs; infinity for other shapes.

    :raises NoEvaluationError: if `onnx.reference` cannot evaluate it.
    """
    try:
        evaluates = evaluator(model)
        wanted = evaluates.run(None, {evaluates.input_names[0]: noise.numpy()})
    except Exception as error:  # the package has no class of its own for what it lacks
        raise NoEvaluationError(f'{type(error).__name__}: {error}') from error
    with torch.inference_mode():
        got = converted(noise)
    return _worst(wanted, [got] if isinstance(got, torch.Tensor) else [*got])


def _worst(wanted: Sequence[Any], got: Sequence[Any]) -> float:
    if len(wanted) != len(got):
        return float('inf')
    return max((apart(torch.from_numpy(np.array(y)), x) for x, y in zip(got, wanted)), default=0.0)


def first_difference(model: Any, converted: fx.GraphModule, noise: torch.Tensor,
                     limit: float) -> str:
    """
    Return which operator is the first that both compute differently, as text; '' if none is found.

    :param model: in the form that was converted.
    :param converted: with the mapping of onnx2torch attached to its modules.
    """
    asked = type(model).FromString(model.SerializeToString())
    known = {value.name for value in asked.graph.output}
    for node in asked.graph.node:
        for name in node.output:
            if name and name not in known:
                asked.graph.output.add().name = name
    try:
        evaluates = evaluator(asked)
        wanted = dict(zip(evaluates.output_names,
                          evaluates.run(None, {evaluates.input_names[0]: noise.numpy()})))
        got = _values(converted, noise)
    except Exception:  # noqa: B902 - it is a better word or none
        return ''
    for node in asked.graph.node:
        for name in node.output:
            if name in got and name in wanted and isinstance(got[name], torch.Tensor) and not \
                    apart(torch.from_numpy(np.array(wanted[name])), got[name]) <= limit:
                return f'{node.op_type} ({node.name or name})'
    return ''


def _values(converted: fx.GraphModule, noise: torch.Tensor) -> Mapping[str, Any]:
    """Return what a converted model computes on the way, by the names in the file."""
    found: dict[str, Any] = {}

    class Watched(fx.Interpreter):
        def call_module(self, target: Any, args: Any, kwargs: Any) -> Any:
            result = super().call_module(target, args, kwargs)
            mapping = getattr(self.fetch_attr(target), 'onnx_mapping', None)
            if mapping is not None:
                several = isinstance(result, (list, tuple))
                found.update(zip(mapping.outputs, result if several else [result]))
            return result

    with torch.inference_mode():
        Watched(converted).run(noise)
    return found
