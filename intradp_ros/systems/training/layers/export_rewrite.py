# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""An export as a function: nothing in place, statistics of norms apart, draws numbered."""
from __future__ import annotations

from collections.abc import Mapping
import operator
from typing import Any

import torch
from torch import fx, nn

from intradp_ros.systems.training.base.task import TaskError
from intradp_ros.systems.training.layers.layer_graph import Norm, tensors_by_name
from intradp_ros.systems.training.layers.stage_interpreter import (
    ATEN,
    ATTENTION,
    BATCH_NORM,
    BERNOULLI,
    DRAW_PLACE,
    DROPOUT,
    FEATURE_DROPOUT,
    INSTANCE_NORM,
    NORM_USE,
)

#: Operators that return what they get where nothing is to be done.
_MAY_PASS = (DROPOUT, FEATURE_DROPOUT, ATEN.alpha_dropout.default)


def name_as(root: fx.GraphModule, module: nn.Module) -> None:
    """Let the graph name what has several names as the module does: by the first one."""
    first: dict[int, str] = {}
    for name, tensor in tensors_by_name(module).items():
        first.setdefault(id(tensor), name)
    names = {name: first[id(tensor)] for name, tensor in tensors_by_name(module).items()}
    for node in root.graph.nodes:
        if node.op == 'get_attr':
            node.target = names.get(str(node.target), node.target)


def inline(root: fx.GraphModule) -> None:
    """Put the nodes of `with torch.no_grad():` into the graph itself; what leaves is detached."""
    for node in list(root.graph.nodes):
        if 'wrap_with_set_grad_enabled' not in str(node.target) or node.op != 'call_function':
            continue
        enabled, inner, *given = node.args
        part = getattr(root, str(inner.target))
        inline(part)
        made: dict[fx.Node, Any] = dict(zip(
            (n for n in part.graph.nodes if n.op == 'placeholder'), given))
        with root.graph.inserting_before(node):
            for one in part.graph.nodes:
                if one.op == 'output':
                    continue
                if one not in made:
                    made[one] = root.graph.node_copy(one, made.__getitem__)
            ends = part.graph.output_node().args[0]
            found = []
            for end in ends if isinstance(ends, (tuple, list)) else [ends]:
                value = made[end]
                if not enabled:
                    left = root.graph.call_function(ATEN.detach.default, (value,))
                    left.meta = dict(value.meta)
                    value = left
                found.append(value)
        for user in list(node.users):
            user.replace_all_uses_with(found[user.args[1]])
            root.graph.erase_node(user)
        root.graph.erase_node(node)


def functional(root: fx.GraphModule) -> tuple[dict[str, Norm], dict[str, str], bool]:
    """
    Take out what counts batches, replace operators that work in place.

    Return the norms, the nodes of new values of other buffers, and whether some nodes draw in a
    way that needs each grain on its own.
    """
    changes, holds = dict[str, str](), dict[fx.Node, str]()
    buffers, norms = set(dict(root.named_buffers(remove_duplicate=False))), dict[str, Norm]()
    learned = set(dict(root.named_parameters(remove_duplicate=False)))
    uses: dict[str, list[fx.Node]] = {}
    for node in list(root.graph.nodes):
        if node.op == 'call_module' and '_guards' in str(node.target):
            root.graph.erase_node(node)
            continue
        if node.op != 'call_function':
            continue
        if node.target is ATEN.view.default:  # what came over a border may lie otherwise
            node.target = ATEN.reshape.default
        schema = getattr(node.target, '_schema', None)
        if node.target is ATEN.detach.default and node.args[0] in holds:
            holds[node] = holds[node.args[0]]  # what leaves `with torch.no_grad():`
        if node.target in (BATCH_NORM, INSTANCE_NORM) and node.args[5] and \
                node.args[3] is not None:
            mean = str(node.args[3].target)
            if mean not in buffers:
                raise TaskError(f'a norm keeps its statistics in {mean}, a tensor that is neither '
                                'a parameter nor a buffer: register_buffer it')
            uses.setdefault(mean, []).append(node)
            norms[mean] = Norm(str(node.args[4].target), float(node.args[6]), len(uses[mean]))
        if schema is None or not schema.is_mutable:
            continue
        into = node.kwargs.get('out', node.args[0])
        if into.op == 'get_attr' and 'num_batches_tracked' in str(into.target):
            node.replace_all_uses_with(into)  # a norm that is used twice counts on
            root.graph.erase_node(node)
            continue
        order = list(root.graph.nodes)
        later = set(order[order.index(node) + 1:])
        _check_written(into, later, learned, holds)
        if into.op == 'get_attr' and into.target in buffers:
            holds[into] = str(into.target)
        if into in holds:
            holds[node] = holds[into]
            changes[holds[into]] = node.name
        node.target = _without_writing(node)
        node.kwargs = _given(node, schema)
        into.replace_all_uses_with(node, later.__contains__)
    for name, made in changes.items():
        _check_free(root, name, made)
    for mean, nodes in uses.items():
        for use, node in enumerate(nodes):
            node.meta[NORM_USE] = mean, use, len(nodes)
    drawn = _number_draws(root)
    root.graph.lint()
    root.recompile()
    return norms, changes, drawn


def _check_written(into: fx.Node, later: set[fx.Node], learned: set[str],
                   holds: Mapping[fx.Node, str]) -> None:
    """See that nothing else is changed with what an operator writes to."""
    origin = into
    while (before := _viewed(origin)) is not None:
        origin = before
    name = str(origin.target)
    if origin.op == 'get_attr' and name in learned:
        raise TaskError(f'the module changes {name} in the forward pass, which is a parameter: '
                        'let a parametrization (torch.nn.utils.parametrize) make what is used of '
                        'it (max_norm of an embedding cannot be used), or keep what follows other '
                        'weights, as a teacher does, in buffers')
    if origin is into or into in holds:
        return
    alike = [one for one in into.graph.nodes if _origin(one) is origin and one is not into]
    if origin.op == 'get_attr' or any(user in later for one in alike for user in one.users):
        what = f'a part of {name}' if origin.op == 'get_attr' else 'a view of a value'
        raise TaskError(f'the module writes to {what} in the forward pass, in a way that cannot '
                        'be followed: use no views that are written to; make a new tensor, by '
                        'torch.where or torch.cat say')


def _origin(node: fx.Node) -> fx.Node:
    while (before := _viewed(node)) is not None:
        node = before
    return node


def _viewed(node: fx.Node) -> fx.Node | None:
    """Return the value of which a node is a view, or may be one; None if it is a value itself."""
    if node.op != 'call_function' or not node.args or not isinstance(node.args[0], fx.Node):
        return None
    if node.target is operator.getitem:  # of a split, say
        return _viewed(node.args[0])
    schema = getattr(node.target, '_schema', None)
    if schema is None or schema.is_mutable:
        return None
    views = any(one.alias_info is not None for one in schema.arguments)
    return node.args[0] if views or node.target in _MAY_PASS else None


def _given(node: fx.Node, before: Any) -> dict[str, Any]:
    """Return the arguments by name of an operator that wrote: others may have other defaults."""
    named = {one.name: one.default_value for one in before.arguments[len(node.args):]
             if one.has_default_value()} | node.kwargs
    wanted = {one.name for one in node.target._schema.arguments  # type: ignore[union-attr]
              if one.name in node.kwargs or not one.has_default_value()}
    return {name: value for name, value in named.items() if name in wanted and name != 'out'}


def _without_writing(node: fx.Node) -> Any:
    """Return the operator that returns what another one writes."""
    schema = node.target._schema  # type: ignore[union-attr]
    packet = getattr(ATEN, schema.name.removeprefix('aten::').rstrip('_'), None)
    if node.target is ATEN.bernoulli_.float:
        return BERNOULLI
    if 'out' in node.kwargs:
        wanted = [(one.name, str(one.type)) for one in schema.arguments if one.name != 'out']
        for name in packet.overloads() if packet else ():
            found = getattr(packet, name)
            if [(one.name, str(one.type)) for one in found._schema.arguments] == wanted:
                return found
        packet = None
    found = getattr(packet, schema.overload_name or 'default', None) or getattr(
        getattr(ATEN, f'{schema.name[6:]}functional', None), 'default', None)  # of normal_
    if found is None:
        raise TaskError(f'{schema.name} works in place, and has no other form')
    return found


def _check_free(root: fx.GraphModule, buffer: str, made: str) -> None:
    """See that what a forward pass makes of a buffer depends neither on samples nor on draws."""
    ahead = [node for node in root.graph.nodes if node.name == made]
    seen = set(ahead)
    while ahead:
        one = ahead.pop()
        if one.op == 'placeholder' or draws(one):
            raise TaskError(
                f'the module changes its buffer {buffer} in the forward pass by what it makes of '
                'samples, or draws: only running statistics of norms may change so')
        new = set(one.all_input_nodes) - seen
        ahead, seen = [*ahead, *new], seen | new


def _number_draws(root: fx.GraphModule) -> bool:
    """Give each node that draws its place; return whether some need each grain on its own."""
    place, others = 0, False
    for node in root.graph.nodes:
        if node.op != 'call_function':
            continue
        known = node.target in (DROPOUT, FEATURE_DROPOUT, BERNOULLI, ATTENTION)
        if not known and not draws(node):
            continue
        node.meta[DRAW_PLACE] = place
        place, others = place + 1, others or not known
    return others


def draws(node: fx.Node) -> bool:
    """Whether a node draws; recurrent networks do where they drop out."""
    if node.op != 'call_function' or \
            torch.Tag.nondeterministic_seeded not in getattr(node.target, 'tags', ()):
        return False
    given = dict(zip((argument.name for argument in
                      node.target._schema.arguments), node.args))  # type: ignore[union-attr]
    given |= node.kwargs
    return not ('dropout' in given and (not given['dropout'] or not given.get('train', True)))
