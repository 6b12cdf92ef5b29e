# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""Capture a torch module as an operator graph."""
from __future__ import annotations

from typing import Any

import torch
from torch import nn
from torch.export import ExportedProgram
from torch.export.graph_signature import InputKind, OutputKind
from torch.utils import _pytree as pytree

from intradp_ros.graph.errors import CaptureError
from intradp_ros.graph.fx_import import import_body, import_results, USER_INPUT
from intradp_ros.graph.operator_graph import OperatorGraph, ParameterRef


def capture(
        model: nn.Module, example: torch.Tensor | tuple[Any, ...], *,
        name: str | None = None) -> OperatorGraph:
    """
    Capture a model, as it behaves in evaluation, for inputs shaped as `example`.

    Raises
    ------
    CaptureError
        If the model cannot be captured; the message names the culprit.

    """
    args = example if isinstance(example, tuple) else (example,)
    with torch.no_grad():
        program = torch.export.export(model.eval(), args, strict=False).run_decompositions({})
    return _from_program(program, name or type(model).__name__)


def _from_program(program: ExportedProgram, name: str) -> OperatorGraph:
    tensors = {**program.constants, **program.state_dict}
    names = _first_names(tensors)
    placeholders: dict[str, Any] = {}
    for spec in program.graph_signature.input_specs:
        if spec.kind is InputKind.USER_INPUT:
            constant = getattr(spec.arg, 'value', USER_INPUT)
            placeholders[spec.arg.name] = constant
        elif spec.target in names:
            placeholders[spec.arg.name] = ParameterRef(names[spec.target])
        else:
            raise CaptureError(f'{spec.target!r} is no tensor')
    body = import_body(program.graph, placeholders)
    results = import_results(body, program.graph)
    kinds = [spec.kind for spec in program.graph_signature.output_specs]
    outputs = tuple(r for r, kind in zip(results, kinds) if kind is OutputKind.USER_OUTPUT)
    inputs = tuple(
        body.meaning[node].value for node in program.graph.nodes
        if node.op == 'placeholder' and placeholders[node.name] is USER_INPUT)
    return OperatorGraph(
        name=name, values=tuple(body.values), operators=tuple(body.operators), inputs=inputs,
        outputs=outputs, output_tree=pytree.treespec_dumps(program.call_spec.out_spec),
        parameters={name: tensors[name].detach() for name in dict.fromkeys(names.values())})


def _first_names(tensors: dict[str, torch.Tensor]) -> dict[str, str]:
    """Give each tensor the first name under which the same memory is known."""
    first: dict[Any, str] = {}
    return {
        name: first.setdefault((t.data_ptr(), t.shape, t.stride(), t.dtype), name)
        for name, t in tensors.items()}
