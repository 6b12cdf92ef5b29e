# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""
Numbers that a program reads out of tensors, where no input has a part in these.

A model may keep the sizes of its feature maps in a tensor and split by them.
An exported program then has sizes that are not known, though they are the
same at every call.  They are computed, and the program is exported anew.
"""
from __future__ import annotations

from collections.abc import Mapping, Sequence
import inspect
from operator import attrgetter
from typing import Any

import torch
from torch import fx
from torch.export import ExportedProgram

_READS = (torch.ops.aten.item.default, torch.ops.aten._local_scalar_dense.default)

def settle_numbers(program: ExportedProgram) -> fx.GraphModule | None:
    """
    Return a functional program with such numbers as constants, None if it reads none.

    What comes back is a module to be exported anew; numbers that depend on
    inputs are left in it.
    """
    if not any(node.target in _READS for node in program.graph.nodes):
        return None
    # Older releases of torch add no guards, and know no such argument.
    guards = 'check_guards' in inspect.signature(program.module).parameters
    module: fx.GraphModule = program.module(**({'check_guards': False} if guards else {}))
    numbers = _numbers(module)
    for node, number in numbers.items():
        node.replace_all_uses_with(number)
        module.graph.erase_node(node)
    module.recompile()
    return module if numbers else None


def _numbers(module: fx.GraphModule) -> dict[fx.Node, Any]:
    """Compute the numbers that are read from what parameters and constants make."""
    nodes = list(module.graph.nodes)
    wanted = _leading_to([node for node in nodes if node.target in _READS])
    known: dict[fx.Node, Any] = {}
    for node in nodes:
        if node in wanted and node.op == 'get_attr':
            known[node] = attrgetter(node.target)(module)
        elif node in wanted and node.op == 'call_function' and _is_known(node, known):
            args, kwargs = fx.map_arg((node.args, node.kwargs), known.__getitem__)
            known[node] = node.target(*args, **kwargs)
    return {node: known[node] for node in known if node.target in _READS}


def _leading_to(nodes: Sequence[fx.Node]) -> set[fx.Node]:
    found: set[fx.Node] = set()
    waiting = list(nodes)
    while waiting:
        node = waiting.pop()
        if node not in found:
            found.add(node)
            waiting.extend(node.all_input_nodes)
    return found


def _is_known(node: fx.Node, known: Mapping[fx.Node, Any]) -> bool:
    tags = getattr(node.target, 'tags', ())
    return (all(source in known for source in node.all_input_nodes)
            and torch.Tag.nondeterministic_seeded not in tags)
