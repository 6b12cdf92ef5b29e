# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""ONNX files in the form that onnx2torch reads: exporters write more forms than it knows."""
from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib import import_module
from typing import Any

import numpy as np
import torch
from torch import nn

#: The newest set of operators that onnx2torch knows well.
NEWEST = 17
#: The set of operators in which batch norms say whether they are in training.
_BATCH_NORM = 15
#: Numbers of a constant that is computed beforehand: shapes and sizes, not weights.
_FEW = 4096
#: Shapes that depend on computed sizes are known in the next round.
_ROUNDS = 10


def readable(path: str, shape: Sequence[int] = ()) -> Any:
    """
    Return the model of a file, with the same results in fewer forms.

    Constants stand among the weights, what only hands on is left out, hard
    sigmoids (whose slope onnx2torch does not read) are spelled out, and newer
    sets of operators are brought to `NEWEST` where onnx can do that.
    For an input of that shape, sizes that are computed from it are constants.
    """
    onnx: Any = import_module('onnx')
    model = onnx.load(path)
    graph = model.graph
    _keep(graph, 'node', [node for node in graph.node if not _stored(onnx, graph, node)])
    _bypass(graph)
    _spell_out(onnx, graph)
    if shape:
        model = _settled(onnx, model, shape)
    newest = max((s.version for s in model.opset_import if s.domain in ('', 'ai.onnx')),
                 default=0)
    if newest <= NEWEST:
        return model
    try:
        return import_module('onnx.version_converter').convert_version(model, NEWEST)
    except Exception:  # whatever it cannot convert, the converter to torch names
        return model


class Reshaped(nn.Module):
    """A reshape to a shape that is known; 0 keeps a dimension."""

    def __init__(self, shape: Sequence[int]) -> None:
        super().__init__()
        self.shape = [*shape]

    def forward(self, x: torch.Tensor, *shape: torch.Tensor) -> torch.Tensor:
        """Return the tensor in that shape."""
        return x.reshape([size or x.shape[n] for n, size in enumerate(self.shape)])


class Resized(nn.Module):
    """An interpolation to sizes, or by factors, that are known."""

    def __init__(self, like: Any, dims: int, sizes: Sequence[int] | None,
                 scales: Sequence[float] | None) -> None:
        super().__init__()
        bent = {3: 'linear', 4: 'bilinear', 5: 'trilinear'}
        self.mode = {'linear': bent[dims], 'cubic': 'bicubic'}.get(like.onnx_mode, like.onnx_mode)
        self.aligned = like.align_corners
        self.sizes = [*sizes[2:]] if sizes else None
        self.scales = None if sizes or not scales else [*scales[2:]]

    def forward(self, x: torch.Tensor, *told: torch.Tensor) -> torch.Tensor:
        """Return the tensor with other height and width."""
        return nn.functional.interpolate(x, self.sizes, self.scales, self.mode, self.aligned)


def settle(converted: Any) -> nn.Module:
    """Let shapes and sizes that stand in constants be numbers; returns the module itself."""
    for node in converted.graph.nodes:
        if node.op != 'call_module':
            continue
        module = converted.get_submodule(node.target)
        name = type(module).__name__
        if name == 'OnnxReshape':
            (shape,) = _told(converted, node.args[1:2])
            if shape:
                converted.set_submodule(node.target, Reshaped(shape))
        elif name == 'OnnxResize':
            names = ('roi', 'scales', 'sizes')
            given = {**dict(zip(names, node.args[1:])), **node.kwargs}
            scales, sizes = _told(converted, [given.get('scales'), given.get('sizes')])
            if scales or sizes:
                dims = len(sizes or scales or ())
                converted.set_submodule(node.target, Resized(module, dims, sizes, scales))
    module_: nn.Module = converted
    return module_


def _told(converted: Any, arguments: Sequence[Any]) -> list[list[Any] | None]:
    """Return the numbers in constants, None of what is computed."""
    numbers: list[list[Any] | None] = []
    for argument in arguments:
        known = getattr(argument, 'op', '') == 'get_attr'
        if not known:
            numbers.append(None)
            continue
        value: Any = converted
        for part in argument.target.split('.'):
            value = getattr(value, part)
        numbers.append(value.tolist())
    return numbers


def _settled(onnx: Any, model: Any, shape: Sequence[int]) -> Any:
    """Return a model for an input of that shape, with what depends on it alone computed."""
    weights = {weight.name for weight in model.graph.initializer}
    inputs = [value for value in model.graph.input if value.name not in weights]
    if len(inputs) != 1:
        return model
    _set_shape(inputs[0], shape)
    for value in model.graph.output:
        value.type.tensor_type.ClearField('shape')
    for _ in range(_ROUNDS):
        model.graph.ClearField('value_info')
        model = onnx.shape_inference.infer_shapes(model, data_prop=True)
        if not _folded(onnx, model):
            break
    return model


def _set_shape(value: Any, shape: Sequence[int]) -> None:
    dims = value.type.tensor_type.shape
    dims.ClearField('dim')
    for size in shape:
        dims.dim.add().dim_value = size


def _folded(onnx: Any, model: Any) -> bool:
    """Compute what has constant inputs, and shapes that are known; return whether any was."""
    graph, numpy = model.graph, onnx.numpy_helper
    known = {w.name: numpy.to_array(w) for w in graph.initializer if np.prod(w.dims) <= _FEW}
    shapes = {value.name: [d.dim_value for d in value.type.tensor_type.shape.dim]
              for value in (*graph.value_info, *graph.input)}
    kept, before = [], len(known)
    for node in graph.node:
        told = _computed(onnx, model, node, known, shapes)
        if told is None:
            kept.append(node)
            continue
        known[node.output[0]] = told
        graph.initializer.append(numpy.from_array(told, node.output[0]))
    _keep(graph, 'node', kept)
    return len(known) > before


def _computed(onnx: Any, model: Any, node: Any, known: Mapping[str, Any],
              shapes: Mapping[str, Sequence[int]]) -> Any | None:
    """Return the only result of a node whose inputs are known and small, None otherwise."""
    if len(node.output) != 1 or node.domain not in ('', 'ai.onnx') or node.op_type == 'Loop':
        return None
    if node.op_type == 'Shape':
        dims = shapes.get(node.input[0], ())
        whole = not node.attribute and dims and all(d > 0 for d in dims)
        return np.array(dims, np.int64) if whole else None
    if not node.input or not all(name in known for name in node.input if name):
        return None
    graph = onnx.helper.make_graph(
        [node], 'one', [], [onnx.helper.make_empty_tensor_value_info(node.output[0])],
        [onnx.numpy_helper.from_array(known[name], name) for name in set(node.input) if name])
    alone = onnx.helper.make_model(graph, opset_imports=model.opset_import)
    try:
        (result,) = import_module('onnx.reference').ReferenceEvaluator(alone).run(None, {})
    except Exception:  # an operator that the package does not define: left as it is
        return None
    return result if isinstance(result, np.ndarray) and result.size <= _FEW else None


def _stored(onnx: Any, graph: Any, node: Any) -> bool:
    """Put a constant among the weights; return whether that was done."""
    if node.op_type != 'Constant' or len(node.attribute) != 1:
        return False
    (attribute,) = node.attribute
    if attribute.name != 'value':
        return False
    weight = onnx.TensorProto()
    weight.CopyFrom(attribute.t)
    weight.name = node.output[0]
    graph.initializer.append(weight)
    return True


def _bypass(graph: Any) -> None:
    """Leave out nodes that only hand a value on, save for those that make a result."""
    results = {value.name for value in graph.output}
    source: dict[str, str] = {}
    kept = []
    for node in graph.node:
        if node.op_type == 'Identity' and node.output[0] not in results:
            source[node.output[0]] = _first(source, node.input[0])
        else:
            kept.append(node)
    for node in kept:
        node.input[:] = [_first(source, name) for name in node.input]
    _keep(graph, 'node', kept)


def _spell_out(onnx: Any, graph: Any) -> None:
    """Write ``clip(slope * x + shift, 0, 1)`` for every hard sigmoid."""
    node, nodes = onnx.helper.make_node, []
    for one in graph.node:
        if one.op_type != 'HardSigmoid':
            nodes.append(one)
            continue
        told = {'alpha': 0.2, 'beta': 0.5, **{a.name: a.f for a in one.attribute}}
        name = one.output[0]
        for part, value in (('slope', told['alpha']), ('shift', told['beta']), ('zero', 0.0),
                            ('one', 1.0)):
            graph.initializer.append(onnx.numpy_helper.from_array(
                np.array(value, np.float32), f'{name} {part}'))
        nodes += [node('Mul', [one.input[0], f'{name} slope'], [f'{name} steep']),
                  node('Add', [f'{name} steep', f'{name} shift'], [f'{name} high']),
                  node('Clip', [f'{name} high', f'{name} zero', f'{name} one'], [name])]
    _keep(graph, 'node', nodes)


def defined(path: str) -> Any:
    """
    Return what evaluates a file by the operators' definitions (`onnx.reference`).

    Old batch norms, which that takes for ones in training, are brought to newer ones first.
    """
    onnx: Any = import_module('onnx')
    model = onnx.load(path)
    oldest = min((s.version for s in model.opset_import if s.domain in ('', 'ai.onnx')),
                 default=_BATCH_NORM)
    if oldest < _BATCH_NORM:
        model = import_module('onnx.version_converter').convert_version(model, _BATCH_NORM)
    return import_module('onnx.reference').ReferenceEvaluator(model)


def apart(path: str, converted: nn.Module, shape: Sequence[int]) -> float:
    """
    Return how far a converted model is from what the operators' definitions say.

    Of noise, by the greatest spread among the outputs; infinity for other shapes.
    """
    evaluator = defined(path)
    noise = torch.randn(tuple(shape), generator=torch.Generator().manual_seed(0))
    wanted = evaluator.run(None, {evaluator.input_names[0]: noise.numpy()})
    with torch.inference_mode():
        got = converted(noise)
    got = [got] if isinstance(got, torch.Tensor) else [*got]
    if [tuple(x.shape) for x in got] != [x.shape for x in wanted]:
        return float('inf')
    worst = max(float(np.abs(x.numpy().astype(np.float64) - y).max() / (float(np.ptp(y)) or 1.0))
                for x, y in zip(got, wanted))
    return worst if worst == worst else float('inf')


def _first(source: Mapping[str, str], name: str) -> str:
    return source.get(name, name)


def _keep(graph: Any, field: str, items: list[Any]) -> None:
    """Replace a repeated field of a message."""
    copies = [type(item).FromString(item.SerializeToString()) for item in items]
    graph.ClearField(field)
    getattr(graph, field).extend(copies)
