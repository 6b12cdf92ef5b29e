# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""The structure of an operator graph as a JSON document, read back strictly."""
from __future__ import annotations

from collections.abc import Mapping
from math import prod
from typing import Any

import torch

from intradp_ros.core.limits import MAX_DIMENSIONS, MAX_ELEMENTS, MAX_OPERATORS, MAX_ROWS
from intradp_ros.graph.encoding import decode, DTYPES, encode
from intradp_ros.graph.graph_errors import GraphFormatError
from intradp_ros.graph.operator_graph import Operator, OperatorGraph, Value

FORMAT = 'intradp_ros.graph'
VERSION = 1

Json = dict[str, Any]


def structure_of(graph: OperatorGraph) -> Json:
    """
    Return everything about a graph but the data of its parameters.

    :raises GraphFormatError: if the graph was captured as one opaque operator, which only its own
        process can run, or if an argument cannot be written.
    """
    if graph.opaque is not None:
        raise GraphFormatError(
            f'model {graph.name!r} was captured as one operator and cannot be serialised; the '
            'warning of its capture says what keeps it from being captured as a graph')
    return {
        'format': FORMAT,
        'version': VERSION,
        'name': graph.name,
        'method': graph.method,
        'values': [
            {'name': v.name, 'shape': list(v.shape), 'dtype': encode(v.dtype)['dtype']}
            for v in graph.values],
        'operators': [
            {'name': op.name, 'target': op.target, 'args': encode(op.args),
             'kwargs': {key: encode(item) for key, item in op.kwargs.items()},
             'outputs': list(op.outputs)}
            for op in graph.operators],
        'inputs': list(graph.inputs),
        'arguments': encode(graph.arguments),
        'input_tree': graph.input_tree,
        'outputs': encode(graph.outputs),
        'output_tree': graph.output_tree,
        'parameters': [
            describe_parameter(name, tensor) for name, tensor in sorted(graph.parameters.items())],
    }


def describe_parameter(name: str, tensor: torch.Tensor) -> Json:
    """Return a parameter's name, shape and dtype."""
    return {'name': name, 'shape': list(tensor.shape), 'dtype': encode(tensor.dtype)['dtype']}


def graph_of(document: Any) -> OperatorGraph:
    """
    Return the graph that a document describes; its parameters have no data.

    Only the form is checked here, not that the ids make sense.

    :raises GraphFormatError: if the document has unknown, missing or ill-typed parts.
    """
    _check_version(document)
    fields = _fields(document, 'graph', _GRAPH)
    values = tuple(_value(k, item) for k, item in enumerate(fields['values']))
    if len(fields['operators']) > MAX_OPERATORS or len(fields['values']) > 4 * MAX_OPERATORS:
        raise GraphFormatError(f'a graph of more than {MAX_OPERATORS} operators')
    operators = tuple(_operator(k, item) for k, item in enumerate(fields['operators']))
    parameters = dict(_parameter(item) for item in fields['parameters'])
    if len(parameters) != len(fields['parameters']):
        raise GraphFormatError('two parameters have the same name')
    return OperatorGraph(
        name=fields['name'], values=values, operators=operators,
        inputs=_ids(fields['inputs'], 'inputs'), outputs=tuple(decode(fields['outputs'])),
        output_tree=fields['output_tree'], parameters=parameters,
        arguments=tuple(decode(fields['arguments'])), input_tree=fields['input_tree'],
        method=fields['method'])


_GRAPH = {
    'format': str, 'version': int, 'name': str, 'method': str, 'values': list, 'operators': list,
    'inputs': list, 'arguments': list, 'input_tree': str, 'outputs': list, 'output_tree': str,
    'parameters': list}
_TENSOR = {'name': str, 'shape': list, 'dtype': str}
_OPERATOR = {'name': str, 'target': str, 'args': list, 'kwargs': dict, 'outputs': list}


def _check_version(document: Any) -> None:
    if not isinstance(document, dict) or document.get('format') != FORMAT:
        raise GraphFormatError(f'no {FORMAT} document')
    if document.get('version') != VERSION:
        raise GraphFormatError(
            f'document of version {document.get("version")!r}; this program reads {VERSION}')


def _fields(item: Any, what: str, types: Mapping[str, type]) -> Json:
    """Check that an object has exactly these keys, with values of exactly these types."""
    if not isinstance(item, dict) or set(item) != set(types):
        keys = sorted(set(item) ^ set(types)) if isinstance(item, dict) else type(item).__name__
        raise GraphFormatError(f'{what} has unknown or missing keys: {keys}')
    for key, kind in types.items():
        if type(item[key]) is not kind:
            raise GraphFormatError(
                f'{what}: {key!r} is a {type(item[key]).__name__}, not a {kind.__name__}')
    return item


def _value(number: int, item: Any) -> Value:
    name, shape, dtype = _tensor(item, f'value {number}')
    return Value(number, name, shape, dtype)


def _parameter(item: Any) -> tuple[str, torch.Tensor]:
    name, shape, dtype = _tensor(item, 'parameter')
    return name, torch.empty(shape, dtype=dtype, device='meta')


def _tensor(item: Any, what: str) -> tuple[str, tuple[int, ...], torch.dtype]:
    fields = _fields(item, what, _TENSOR)
    shape = _ids(fields['shape'], f'the shape of {what}')
    if any(size < 0 for size in shape) or prod(shape) > MAX_ELEMENTS or \
            len(shape) > MAX_DIMENSIONS or max(shape, default=0) > MAX_ROWS:
        raise GraphFormatError(f'{what} has the impossible shape {list(shape)[:64]}')
    if fields['dtype'] not in DTYPES:
        raise GraphFormatError(f'{what} has the unknown dtype {fields["dtype"]!r}')
    return fields['name'], shape, DTYPES[fields['dtype']]


def _operator(number: int, item: Any) -> Operator:
    fields = _fields(item, f'operator {number}', _OPERATOR)
    results = fields['outputs']
    _ids([v for v in results if v is not None], f'the outputs of operator {number}')
    if not any(v is not None for v in results):
        raise GraphFormatError(f'operator {number} has no output')
    return Operator(
        number, fields['name'], fields['target'], tuple(decode(fields['args'])),
        {key: decode(argument) for key, argument in fields['kwargs'].items()}, tuple(results))


def _ids(items: Any, what: str) -> tuple[int, ...]:
    if not all(type(item) is int for item in items):
        raise GraphFormatError(f'{what} holds something else than whole numbers')
    return tuple(items)
