# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""Turn an exported program, a functional torch.fx graph of ATen calls, into operators."""
from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
import operator as python_operator
from typing import Any

import torch
from torch import fx
from torch._ops import HigherOrderOperator, OpOverload
from torch.export import ExportedProgram
from torch.export.graph_signature import InputKind, OutputKind

from intradp_ros.graph.graph_errors import CaptureError
from intradp_ros.graph.operator_graph import Operator, ParameterRef, Value, ValueRef

PREFIX = 'model.'
"""What `FlatModel` puts before the names of the model's parameters."""


@dataclass
class Imported:
    """The parts of an operator graph; `results` are the model's tensor results, in order."""

    values: list[Value] = field(default_factory=list)
    operators: list[Operator] = field(default_factory=list)
    inputs: list[int] = field(default_factory=list)
    results: list[Any] = field(default_factory=list)
    parameters: dict[str, torch.Tensor] = field(default_factory=dict)
    opaque: Callable[..., Any] | None = None

    def add_value(self, name: str, tensor: torch.Tensor) -> ValueRef:
        """Append a value with the shape and dtype of `tensor`."""
        self.values.append(Value(len(self.values), name, tuple(tensor.shape), tensor.dtype))
        return ValueRef(len(self.values) - 1)


Meaning = dict[fx.Node, Any]
Given = str | tuple[str, torch.Tensor]
"""What an argument of a program is: the named input, or a parameter with its name."""


def import_program(program: ExportedProgram, given: Sequence[Given]) -> Imported:
    """
    Import the calls of a program, in order.

    `given` says what each of the program's own arguments is.

    :raises CaptureError: if a node is not a functional operator call or has no static shape; names
        it.
    """
    imported = Imported()
    meaning = _import_placeholders(imported, program, given)
    for node in program.graph.nodes:
        if node.op == 'call_function':
            _import_call(imported, meaning, node)
        elif node.op == 'get_attr' and all(_is_higher(user) for user in node.users):
            continue  # a function that is an argument of those: they are refused by their name
        elif node.op not in ('placeholder', 'output'):
            raise CaptureError(f'{_site(node)} is a {node.op}, not the call of an operator')
    (results,) = program.graph.output_node().args
    kinds = [spec.kind for spec in program.graph_signature.output_specs]
    imported.results = [
        _argument(meaning, item) for item, kind in zip(results, kinds)
        if kind is OutputKind.USER_OUTPUT]
    return imported


def _import_placeholders(
        imported: Imported, program: ExportedProgram,
        given: Sequence[Given]) -> Meaning:
    tensors = {**program.state_dict, **program.constants}
    first_names = _first_names(tensors)
    nodes = {node.name: node for node in program.graph.nodes if node.op == 'placeholder'}
    arguments = iter(given)
    meaning: Meaning = {}
    for spec in program.graph_signature.input_specs:
        node = nodes[spec.arg.name]
        if spec.kind is InputKind.USER_INPUT:
            meaning[node] = _import_argument(imported, node, next(arguments))
        elif isinstance(tensors.get(spec.target or ''), torch.Tensor):
            name = first_names[str(spec.target)]
            imported.parameters[name.removeprefix(PREFIX)] = tensors[name].detach()
            meaning[node] = ParameterRef(name.removeprefix(PREFIX))
        else:
            raise CaptureError(f'the model reads {spec.target!r}, which is not a tensor')
    return meaning


def _import_argument(imported: Imported, node: fx.Node, what: Given) -> Any:
    if isinstance(what, str):
        ref = imported.add_value(what, node.meta['val'])
        imported.inputs.append(ref.value)
        return ref
    name, tensor = what
    imported.parameters[name] = tensor.detach()
    return ParameterRef(name)


def _first_names(tensors: dict[str, Any]) -> dict[str, str]:
    """Give each tensor the first name under which the same memory is known."""
    first: dict[Any, str] = {}
    names = {}
    for name, t in tensors.items():
        if isinstance(t, torch.Tensor):
            memory = (t.data_ptr(), t.shape, t.stride(), t.dtype) if t.numel() else name
            names[name] = first.setdefault(memory, name)
    return names


def _import_call(imported: Imported, meaning: Meaning, node: fx.Node) -> None:
    if node.target is python_operator.getitem:
        source, index = node.args
        meaning[node] = _argument(meaning, source)[index]
        return
    result = node.meta.get('val')
    if _is_higher(node):
        raise CaptureError(
            f'{_site(node)} takes functions as arguments: what it computes is decided at each '
            'call, and no graph of operators can say that')
    if result is None and not node.users:
        return  # an assertion: it computes nothing
    if not isinstance(node.target, OpOverload):
        raise CaptureError(f'{_site(node)} is not an operator that can be captured')
    if 'as_strided' in str(node.target):
        raise CaptureError(f'{_site(node)} depends on how its input lies in memory')
    args = tuple(_argument(meaning, item) for item in node.args)
    kwargs = {key: _argument(meaning, node.kwargs[key]) for key in sorted(node.kwargs)}
    refs = _add_results(imported, node, result)
    meaning[node] = refs if isinstance(result, (list, tuple)) else refs[0]
    outputs = tuple(None if ref is None else ref.value for ref in refs)
    imported.operators.append(Operator(
        len(imported.operators), node.name, str(node.target), args, kwargs, outputs))


def _is_higher(node: fx.Node) -> bool:
    return isinstance(node.target, HigherOrderOperator)


def _add_results(imported: Imported, node: fx.Node, result: Any) -> list[ValueRef | None]:
    """Make a value for a node's single result, or for each of its results that is read."""
    for tensor in result if isinstance(result, (list, tuple)) else [result]:
        if not isinstance(tensor, torch.Tensor) or not all(type(n) is int for n in tensor.shape):
            raise CaptureError(
                f'{_site(node)} yields a number or a size that depends on the values of a tensor')
    if isinstance(result, torch.Tensor):
        return [imported.add_value(node.name, result)]
    picked = [
        user.args[1] if user.target is python_operator.getitem else None for user in node.users]
    return [
        imported.add_value(f'{node.name}.{k}', item) if k in picked or None in picked else None
        for k, item in enumerate(result)]


def _argument(meaning: Meaning, item: Any) -> Any:
    if isinstance(item, fx.Node):
        return meaning[item]
    if isinstance(item, (list, tuple)):
        return [_argument(meaning, part) for part in item]
    if isinstance(item, torch.device):
        return torch.device('cpu')
    return item


def _site(node: fx.Node) -> str:
    """Name a node as the user knows it: the operator and the submodule it stands in."""
    paths = [entry[0] for entry in (node.meta.get('nn_module_stack') or {}).values() if entry[0]]
    where = f' in submodule {paths[-1].removeprefix(PREFIX)!r}' if len(paths) > 1 else ''
    return f'operator {node.name!r} ({node.target}){where}'
