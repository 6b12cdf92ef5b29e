# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""What must hold of an operator graph that came from elsewhere."""
from __future__ import annotations

import re
from typing import Any

from torch._ops import OpOverload

from intradp_ros.graph.graph_errors import GraphFormatError
from intradp_ros.graph.operator_graph import (
    iter_refs,
    Operator,
    OperatorGraph,
    ParameterRef,
    resolve_target,
    ValueRef,
)
from intradp_ros.graph.trees import check_tree

_TARGET = re.compile(r'(aten|torchvision)(\.[A-Za-z_][A-Za-z0-9_]*){2}')
_OF_PYTHON = re.compile(r'aten\.__(and|or|xor|lshift|rshift)__\.(Tensor|Scalar)')
"""The operators that ATen names as Python does; no other such name is looked up."""
_FORBIDDEN = {'aten.from_file.default'}
"""Functional operators that touch more than their arguments."""


def check_graph(graph: OperatorGraph) -> None:
    """
    Check that a graph is one: ids, order, targets, references, structure.

    :raises GraphFormatError: if it is not; names the operator or value.
    """
    _check_inputs(graph)
    known = set(graph.inputs)
    for operator in graph.operators:
        check_target(operator)
        _check_reads(graph, operator.name, (operator.args, operator.kwargs), known)
        for value in operator.outputs:
            _check_result(graph, operator, value, known)
    if len(known) != len(graph.values):
        missing = next(v.name for v in graph.values if v.id not in known)
        raise GraphFormatError(f'value {missing!r} is neither an input nor the result of anything')
    _check_reads(graph, 'the result', graph.outputs, known)
    _check_trees(graph)


def check_target(operator: Operator) -> None:
    """
    Check that an operator calls a functional ATen or torchvision operator that can take the call.

    :raises GraphFormatError: if it does not.  Nothing but names of operators is looked up.
    """
    target, where = operator.target, f'operator {operator.name!r}'
    private = '.__' in target and not _OF_PYTHON.fullmatch(target)
    if not _TARGET.fullmatch(target) or private or target in _FORBIDDEN:
        raise GraphFormatError(f'{where} calls {target!r}, which is not allowed')
    try:
        function = resolve_target(target)
    except ValueError as error:
        if target.startswith('torchvision.'):
            return  # planning needs no torchvision
        raise GraphFormatError(f'{where}: {error}') from error
    if not isinstance(function, OpOverload) or not _is_functional(function):
        raise GraphFormatError(f'{where} calls {target!r}, which is not a functional operator')
    _check_call(operator, function, where)


def _is_functional(function: OpOverload) -> bool:
    """Return whether an operator takes or makes tensors, and writes to none."""
    schema = function._schema
    returns = [str(item.type) for item in schema.returns]
    return bool(returns) and not schema.is_mutable and all('Tensor' in name for name in returns)


def _check_call(operator: Operator, function: OpOverload, where: str) -> None:
    declared = function._schema.arguments
    positional = sum(1 for argument in declared if not argument.kwarg_only)
    names = {argument.name for argument in declared[len(operator.args):]}
    if len(operator.args) > positional or not names.issuperset(operator.kwargs):
        raise GraphFormatError(f'{where} gives {operator.target!r} arguments it does not take')
    given = len(operator.args)
    for argument in declared[given:]:
        if argument.name not in operator.kwargs and not argument.has_default_value():
            raise GraphFormatError(f'{where} lacks the argument {argument.name!r}')


def _check_inputs(graph: OperatorGraph) -> None:
    for value in graph.inputs:
        if not 0 <= value < len(graph.values):
            raise GraphFormatError(f'input {value} is out of range')
    given = [ref.value for ref in iter_refs(graph.arguments, ValueRef)]
    if len(set(graph.inputs)) != len(graph.inputs) or given != list(graph.inputs):
        raise GraphFormatError('inputs and arguments do not name the same values, each once')


def _check_reads(graph: OperatorGraph, reader: str, template: Any, known: set[int]) -> None:
    for ref in iter_refs(template, ValueRef):
        if ref.value not in known:
            raise GraphFormatError(
                f'{reader!r} reads value {ref.value}, which is out of range or comes later')
    for ref in iter_refs(template, ParameterRef):
        if ref.name not in graph.parameters:
            raise GraphFormatError(f'{reader!r} reads the unknown parameter {ref.name!r}')


def _check_result(
        graph: OperatorGraph, operator: Operator, value: int | None, known: set[int]) -> None:
    if value is None:
        return
    if not 0 <= value < len(graph.values) or value in known:
        raise GraphFormatError(
            f'operator {operator.name!r} makes value {value}, which is out of range or made twice')
    known.add(value)


def _check_trees(graph: OperatorGraph) -> None:
    for what, tree, leaves in (('arguments', graph.input_tree, graph.arguments),
                               ('outputs', graph.output_tree, graph.outputs)):
        if check_tree(tree) != len(leaves):
            raise GraphFormatError(f'the structure of the {what} has another count of leaves')
