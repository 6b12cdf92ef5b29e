# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""Turn a functional torch.fx graph of ATen calls into an operator graph."""
from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
import operator as python_operator
from typing import Any

import torch
from torch import fx

from intradp_ros.graph.errors import CaptureError
from intradp_ros.graph.operator_graph import Operator, Value, ValueRef


USER_INPUT = object()


@dataclass
class ImportedBody:
    """Values and operators of an fx graph, and what each of its nodes stands for."""

    values: list[Value] = field(default_factory=list)
    operators: list[Operator] = field(default_factory=list)
    meaning: dict[fx.Node, Any] = field(default_factory=dict)

    def add_value(self, name: str, tensor: torch.Tensor) -> ValueRef:
        """Append a value with the static shape of `tensor`."""
        shape = tuple(_static_size(name, size) for size in tensor.shape)
        self.values.append(Value(len(self.values), name, shape, tensor.dtype))
        return ValueRef(len(self.values) - 1)


def import_body(graph: fx.Graph, placeholders: Mapping[str, Any]) -> ImportedBody:
    """
    Import the calls of an fx graph, in order.

    `placeholders` gives what each placeholder stands for, by node name: a
    `ParameterRef`, a plain constant, or `USER_INPUT` for a tensor that the
    caller supplies, which becomes a value.

    Raises
    ------
    CaptureError
        If a node is no functional operator call or has no static shape.

    """
    body = ImportedBody()
    for node in graph.nodes:
        if node.op == 'placeholder':
            meaning = placeholders[node.name]
            if meaning is USER_INPUT:
                meaning = body.add_value(node.name, node.meta['val'])
            body.meaning[node] = meaning
        elif node.op == 'call_function':
            _import_call(body, node)
        elif node.op != 'output':
            raise CaptureError(f'{_site(node)} is a {node.op} node, not a call of an operator')
    return body


def import_results(body: ImportedBody, graph: fx.Graph) -> list[Any]:
    """Return the graph's results with references in place of nodes."""
    (results,) = graph.output_node().args
    return [_argument(body, item) for item in results]  # type: ignore[union-attr]


def _import_call(body: ImportedBody, node: fx.Node) -> None:
    if node.target is python_operator.getitem:
        source, index = node.args
        body.meaning[node] = body.meaning[source][index]  # type: ignore[index]
        return
    result = node.meta.get('val')
    if result is None and not node.users:
        return  # an assertion: it computes nothing
    if not isinstance(node.target, torch._ops.OpOverload):
        raise CaptureError(f'{_site(node)} is not an operator that can be captured')
    args = tuple(_argument(body, item) for item in node.args)
    kwargs = {key: _argument(body, item) for key, item in node.kwargs.items()}
    body.meaning[node] = refs = _add_results(body, node, result)
    outputs = tuple(
        None if ref is None else ref.value
        for ref in (refs if isinstance(refs, list) else [refs]))
    body.operators.append(
        Operator(len(body.operators), node.name, str(node.target), args, kwargs, outputs))


def _add_results(body: ImportedBody, node: fx.Node, result: Any) -> Any:
    """Make a value for a node's single result, or for each of its results that is read."""
    if isinstance(result, torch.Tensor):
        return body.add_value(node.name, result)
    if not isinstance(result, (list, tuple)):
        raise CaptureError(
            f'{_site(node)} yields a number that depends on the data; '
            'such sizes and conditions cannot be captured')
    picked = [
        user.args[1] if user.target is python_operator.getitem else None for user in node.users]
    return [
        body.add_value(f'{node.name}.{k}', item) if k in picked or None in picked else None
        for k, item in enumerate(result)]


def _argument(body: ImportedBody, item: Any) -> Any:
    if isinstance(item, fx.Node):
        return body.meaning[item]
    if isinstance(item, (list, tuple)):
        parts = [_argument(body, part) for part in item]
        return tuple(parts) if isinstance(item, tuple) else parts
    if isinstance(item, torch.device):
        return torch.device('cpu')
    return item


def _static_size(name: str, size: Any) -> int:
    if isinstance(size, int):
        return size
    raise CaptureError(f'value {name!r} has a size that depends on the data')


def _site(node: fx.Node) -> str:
    """Name a node as the user knows it: the operator and the module it stands in."""
    stack = node.meta.get('nn_module_stack') or {}
    path = [entry[0] for entry in stack.values() if entry[0]]
    where = f' in submodule {path[-1]!r}' if path else ''
    return f'operator {node.name!r} ({node.target}){where}'

