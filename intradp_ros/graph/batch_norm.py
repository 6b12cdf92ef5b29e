# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""
Batch normalisation with fixed statistics is a scale and a shift of each channel.

It disappears into the convolution or linear map that it follows, or becomes
two element-wise operators.  All factors are computed in float64 by basic
arithmetic, so that they are the same on every machine.
"""
from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import torch

from intradp_ros.graph.arguments import arguments_of, type_of
from intradp_ros.graph.operator_graph import Operator, OperatorGraph, ParameterRef, Value, ValueRef
from intradp_ros.graph.rewrite import rebuild, unique_name

Tensor = torch.Tensor


@dataclass(frozen=True)
class ChannelAffine:
    """The map ``x * scale + shift`` with one float64 factor each for every channel."""

    scale: Tensor
    shift: Tensor


def fold_batch_norms(graph: OperatorGraph) -> OperatorGraph:
    """Replace every batch normalisation with fixed statistics."""
    changes = _Changes(graph)
    for operator in graph.operators:
        affine = _affine(graph, operator) if operator.target in _BATCH_NORMS else None
        if affine is not None and not changes.fold(operator, affine):
            changes.scale_and_shift(operator, affine)
    operators = [new for op in graph.operators for new in changes.instead.get(op.id, (op,))]
    return rebuild(graph, operators=operators, same=changes.same, values=changes.values,
                   parameters=changes.parameters)


@dataclass
class _Changes:
    """What takes the places of operators (by operator id), and what that brings along."""

    graph: OperatorGraph
    instead: dict[int, tuple[Operator, ...]] = field(default_factory=dict)
    same: dict[int, ValueRef] = field(default_factory=dict)
    values: list[Value] = field(default_factory=list)
    parameters: dict[str, Tensor] = field(default_factory=dict)

    def fold(self, norm: Operator, affine: ChannelAffine) -> bool:
        """Fold the map into the operator before, if that is linear and read by nobody else."""
        source = arguments_of(norm)['input']
        before = _only_before(self.graph, source)
        if before is None or before.id in self.instead or before.target not in _LINEAR:
            return False
        arguments = arguments_of(before)
        weight, bias = (_float64(self.graph, arguments[name]) for name in ('weight', 'bias'))
        if weight is None or isinstance(arguments['bias'], ValueRef):
            return False
        shape, dtype = type_of(self.graph, source)
        if len(shape) != weight.dim():
            return False  # without a batch, or with more rows: dimension 1 is not a channel
        shift = affine.shift if bias is None else bias * affine.scale + affine.shift
        transposed = before.target in _TRANSPOSED or bool(arguments.get('transposed'))
        weight = _scaled(weight, affine.scale, arguments['groups'] if transposed else None)
        self.instead[before.id] = (_with_parameters(
            before, self._keep(f'{before.name}.folded.weight', weight.to(dtype)),
            self._keep(f'{before.name}.folded.bias', shift.to(dtype))),)
        self.same[_result(norm)] = source
        return True

    def scale_and_shift(self, norm: Operator, affine: ChannelAffine) -> None:
        """Put a multiplication and an addition in the place of the normalisation."""
        source = arguments_of(norm)['input']
        shape, dtype = type_of(self.graph, source)
        channels = (1, -1) + (1,) * (len(shape) - 2)
        factors = [
            self._keep(f'{norm.name}.{name}', tensor.to(dtype).reshape(channels))
            for name, tensor in (('scale', affine.scale), ('shift', affine.shift))]
        scaled = Value(len(self.graph.values) + len(self.values), f'{norm.name}.scaled',
                       shape, dtype)
        self.values.append(scaled)
        self.instead[norm.id] = (
            Operator(norm.id, f'{norm.name}.scale', 'aten.mul.Tensor', (source, factors[0]), {},
                     (scaled.id,)),
            Operator(norm.id, norm.name, 'aten.add.Tensor', (ValueRef(scaled.id), factors[1]), {},
                     (_result(norm),)))

    def _keep(self, name: str, tensor: Tensor) -> ParameterRef:
        name = unique_name(name, {**self.graph.parameters, **self.parameters})
        self.parameters[name] = tensor
        return ParameterRef(name)


_BATCH_NORMS = {
    'aten._native_batch_norm_legit_no_training.default', 'aten.native_batch_norm.default',
    'aten.batch_norm.default'}
_TRANSPOSED = {
    'aten.conv_transpose1d.default', 'aten.conv_transpose2d.input', 'aten.conv_transpose3d.input'}
_LINEAR = {
    'aten.linear.default', 'aten.convolution.default', *_TRANSPOSED,
    *(f'aten.conv{n}d.{overload}' for n in (1, 2, 3) for overload in ('default', 'padding'))}
_FLOATS = (torch.float32, torch.float64)


def _affine(graph: OperatorGraph, norm: Operator) -> ChannelAffine | None:
    """Return the map that a batch normalisation makes, or None if it is not fixed or finite."""
    arguments = arguments_of(norm)
    refs = [arguments[name] for name in ('weight', 'bias', 'running_mean', 'running_var')]
    weight, bias, mean, variance = (_float64(graph, ref) for ref in refs)
    if (arguments.get('training') or mean is None or variance is None
            or type_of(graph, arguments['input'])[1] not in _FLOATS
            or any(isinstance(ref, ValueRef) for ref in refs)
            or any(v is not None for v in norm.outputs[1:])):
        return None
    scale = 1 / torch.sqrt(variance + arguments['eps'])
    scale = scale if weight is None else weight * scale
    shift = -mean * scale if bias is None else bias - mean * scale
    finite = torch.isfinite(scale).all() and torch.isfinite(shift).all()
    return ChannelAffine(scale, shift) if finite else None


def _float64(graph: OperatorGraph, ref: Any) -> Tensor | None:
    return graph.parameters[ref.name].double() if isinstance(ref, ParameterRef) else None


def _result(norm: Operator) -> int:
    (result,) = [v for v in norm.outputs if v is not None]
    return result


def _only_before(graph: OperatorGraph, source: Any) -> Operator | None:
    """Return the operator that makes `source`, provided that nobody but one operator reads it."""
    if not isinstance(source, ValueRef) or source.value not in graph.producer:
        return None
    if len(graph.consumers[source.value]) > 1 or source.value in graph.output_values:
        return None
    return graph.operators[graph.producer[source.value]]


def _scaled(weight: Tensor, scale: Tensor, groups: int | None) -> Tensor:
    """
    Scale a weight along its output channels.

    They come first, but second, and counted within each of `groups`, in the
    weight of a transposed convolution.
    """
    rest = (1,) * (weight.dim() - 2)
    if groups is None:
        return weight * scale.reshape(-1, 1, *rest)
    grouped = weight.reshape(groups, -1, *weight.shape[1:])
    return (grouped * scale.reshape(groups, 1, -1, *rest)).reshape(weight.shape)


def _with_parameters(operator: Operator, weight: ParameterRef, bias: ParameterRef) -> Operator:
    args = (operator.args[0], weight, bias, *operator.args[3:])
    kwargs = {k: item for k, item in operator.kwargs.items() if k not in ('weight', 'bias')}
    return replace(operator, args=args, kwargs=kwargs)
