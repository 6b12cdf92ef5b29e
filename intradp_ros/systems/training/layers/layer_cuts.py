# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""Where an export may be cut, and its layers between the cuts."""
from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
import math
from typing import Any

import torch
from torch import fx, nn

from intradp_ros.systems.training.base.task import TaskError
from intradp_ros.systems.training.layers.layer_graph import (
    Interface,
    Layer,
    LayerGraph,
    MOST_VALUES,
    Norm,
    returned_nodes,
    row_line,
    size_line,
    tensors_by_name,
    Value,
)


def in_layers(root: fx.GraphModule, norms: Mapping[str, Norm], changes: Mapping[str, str],
               dtypes: Mapping[str, torch.dtype], interface: Interface) -> LayerGraph:
    """Return an export in layers, cut where it may be; TaskError if it has no such form."""
    order = list(root.graph.nodes)
    final = list(dict.fromkeys(returned_nodes(root)))
    learned = {name for name, p in root.named_parameters(remove_duplicate=False)
               if p.requires_grad}
    folded = {*changes, *(name for mean, norm in norms.items() for name in (mean, norm.variance))}
    moving = _moving(order, learned | {*changes})
    steps = [node for node in order if node.op == 'call_function' and node in moving
             and row_line(node) is None]
    place = {node: k for k, node in enumerate(steps)}
    place |= {node: -1 for node in order if node.op == 'placeholder'}
    reach = {node: max((place[u] for u in _readers(node, place)), default=-1) for node in place}
    reach |= {node: len(steps) for node in final if node in place}
    held = _spans(root, order, place, learned | folded)
    cuts, found = [0], [_crossing(place, reach, 0, dtypes, moving)]
    for k in range(1, len(steps)):
        if any(a < k <= b for a, b in held.values()):
            continue
        values = _crossing(place, reach, k, dtypes, moving)
        if values is None or len(values) >= MOST_VALUES:
            continue
        if cuts[-1] and not _learns(steps[cuts[-1]:k], learned):
            if _nbytes(values) < _nbytes(found[-1]):
                cuts[-1], found[-1] = k, values  # the narrower of two with nothing learned between
            continue
        cuts.append(k)
        found.append(values)
    if len(cuts) > 1 and not _learns(steps[cuts[-1]:], learned):
        cuts.pop(), found.pop()
    ends = [*cuts, len(steps)]
    if found[0] is None:
        raise TaskError('inputs need one row a sample, and rows of a fixed shape')
    returned = [_value(node, dtypes) for node in final]
    for k, value in enumerate(returned):
        if value is None:
            size = getattr(final[k].meta.get('val'), 'shape', ())
            raise TaskError(
                f'the module returns a tensor of the shape {tuple(map(str, size))} as number '
                f'{interface.order.index(k) + 1}: results need one row a sample, and rows of a '
                'fixed shape. Let the loss make means and sums over samples; give what is the '
                'same for all samples a row for each, by x.expand(rows, ...)')
    found.append(tuple(returned))  # type: ignore[arg-type]
    layers = _with_all(tuple(_layer(root, steps[a:b], folded) for a, b in zip(ends, ends[1:])),
                       changes)
    return LayerGraph(root, layers, tuple(found), norms, interface, changes)  # type: ignore[arg-type]


def _with_all(layers: tuple[Layer, ...], changes: Mapping[str, str]) -> tuple[Layer, ...]:
    """Return layers that have all buffers that change, those too that are never read."""
    owned = {name for layer in layers for name in layer.buffers}
    at = {node.name: k for k, layer in enumerate(layers) for node in layer.nodes}
    more: dict[int, list[str]] = {}
    for name in sorted({*changes} - owned):
        more.setdefault(at.get(changes[name], 0), []).append(name)
    return tuple(replace(layer, buffers=(*layer.buffers, *more.get(k, ())))
                 for k, layer in enumerate(layers))


def _moving(order: Sequence[fx.Node], learned: set[str]) -> set[fx.Node]:
    """Return the nodes that depend on inputs or on what changes; others are constants."""
    found = set[fx.Node]()
    for node in order:
        if node.op == 'placeholder' or node.op == 'get_attr' and node.target in learned \
                or any(one in found and row_line(one) is None for one in node.all_input_nodes):
            found.add(node)
    return found


def _readers(node: fx.Node, place: Mapping[fx.Node, int]) -> set[fx.Node]:
    """Return the steps that read a node's tensor; sizes are none."""
    return {user for user in node.users if user in place}


def _spans(root: fx.GraphModule, order: Sequence[fx.Node], place: Mapping[fx.Node, int],
           state: set[str]) -> dict[str, tuple[int, int]]:
    """Return the first and last step that uses each tensor that is learned or folded."""
    tensors = {name: id(t) for name, t in tensors_by_name(root).items()}
    uses: dict[int, list[int]] = {}
    for node in order:
        if node.op == 'get_attr' and node.target in state:
            uses.setdefault(tensors[str(node.target)], []).extend(
                place[user] for user in node.users if user in place)
    return {str(key): (min(k), max(k)) for key, k in uses.items() if k}


def _crossing(place: Mapping[fx.Node, int], reach: Mapping[fx.Node, int], cut: int,
              dtypes: Mapping[str, torch.dtype], moving: set[fx.Node]) -> tuple[Value, ...] | None:
    found = []
    for node, k in place.items():
        if k >= cut or reach[node] < cut:
            continue
        value = _value(node, dtypes)
        if value is None:
            return None
        found.append(value)
    order = {node.name: k for k, node in enumerate(next(iter(place)).graph.nodes)}
    return tuple(sorted(found, key=lambda value: order[value.name]))


def _value(node: fx.Node, dtypes: Mapping[str, torch.dtype]) -> Value | None:
    """Return what crosses where a node does; None if it has not one row a sample."""
    value = node.meta.get('val')
    if not isinstance(value, torch.Tensor) or not value.dim() or \
            size_line(value.shape[0]) != (1, 0) or \
            any(not isinstance(size, int) for size in value.shape[1:]):
        return None
    dtype = dtypes.get(node.name, value.dtype)
    return Value(node.name, tuple(value.shape[1:]), dtype,
                 node.op != 'placeholder' and (dtype.is_floating_point or dtype.is_complex)
                 and bool(value.requires_grad or _learned_behind(node)))


def _learned_behind(node: fx.Node) -> bool:
    """Whether a value depends on a parameter."""
    ahead, seen = [node], {node}
    while ahead:
        one = ahead.pop()
        if one.op == 'get_attr' and isinstance(one.meta.get('val'), nn.Parameter):
            return True
        if one.op == 'get_attr':
            target: Any = one.graph.owning_module
            for name in str(one.target).split('.'):
                target = getattr(target, name)
            if isinstance(target, nn.Parameter) and target.requires_grad:
                return True
        for before in one.all_input_nodes:
            if before not in seen:
                seen.add(before)
                ahead.append(before)
    return False


def _learns(steps: Sequence[fx.Node], learned: set[str]) -> bool:
    return any(one.op == 'get_attr' and one.target in learned
               for node in steps for one in node.all_input_nodes)


def _nbytes(values: Sequence[Value] | None) -> float:
    return math.inf if values is None else sum(value.nbytes for value in values)


def _layer(root: fx.GraphModule, nodes: Sequence[fx.Node], folded: set[str]) -> Layer:
    parameters = dict(root.named_parameters(remove_duplicate=False))
    used = list(dict.fromkeys(str(one.target) for node in nodes for one in node.all_input_nodes
                              if one.op == 'get_attr'))
    own = tuple(name for name in used if name in parameters)
    name = next((name.rpartition('.')[0] for name in own), '') or next(
        (node.name for node in nodes if not node.name.startswith('_assert')), nodes[0].name)
    return Layer(name, tuple(nodes), own, tuple(name for name in used if name in folded))
