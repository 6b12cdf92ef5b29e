# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""Convolutions by the names that models give them."""
from __future__ import annotations

from typing import Any

from intradp_ros.graph.arguments import arguments_of, type_of
from intradp_ros.graph.operator_graph import Operator, OperatorGraph
from intradp_ros.graph.rewrite import rebuild


def name_convolutions(graph: OperatorGraph) -> OperatorGraph:
    """
    Name each general convolution, as traced TorchScript has it, by its kind.

    One operator stands there for convolutions of one to three dimensions and
    their transpositions; rules are about each of these.
    """
    return rebuild(graph, operators=[
        _named(graph, op) if op.target in _GENERAL else op for op in graph.operators])


def _named(graph: OperatorGraph, operator: Operator) -> Operator:
    given = arguments_of(operator)
    spatial = len(type_of(graph, given['weight'])[0]) - 2
    if not 1 <= spatial <= 3:
        return operator
    transposed = bool(given['transposed'])
    target = _TARGETS[transposed][spatial - 1]
    args: tuple[Any, ...] = tuple(given[name] for name in _ARGUMENTS[transposed])
    return Operator(operator.id, operator.name, target, args, {}, operator.outputs)


_GENERAL = {
    'aten._convolution.default', 'aten._convolution.deprecated', 'aten.convolution.default'}
_TARGETS = {
    False: ('aten.conv1d.default', 'aten.conv2d.default', 'aten.conv3d.default'),
    True: ('aten.conv_transpose1d.default', 'aten.conv_transpose2d.input',
           'aten.conv_transpose3d.input')}
_ARGUMENTS = {
    False: ('input', 'weight', 'bias', 'stride', 'padding', 'dilation', 'groups'),
    True: ('input', 'weight', 'bias', 'stride', 'padding', 'output_padding', 'groups',
           'dilation')}
