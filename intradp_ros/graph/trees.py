# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""Nested inputs and results of a model: flattening, rebuilding, and their form as text."""
from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
import json
from typing import Any
import warnings

import torch
from torch.utils import _pytree as pytree

from intradp_ros.core.json_text import parse_json
from intradp_ros.graph.graph_errors import GraphFormatError
from intradp_ros.graph.operator_graph import OperatorGraph

Tree = pytree.TreeSpec


def rebuild_outputs(graph: OperatorGraph, flat: Sequence[Any]) -> Any:
    """
    Rebuild the model's own result from the graph's flattened outputs.

    :raises GraphFormatError: if the structure holds a class that this process does not know.
    """
    return unflattened(list(flat), load_tree(graph.output_tree))


def unflattened(flat: Sequence[Any], tree: Tree) -> Any:
    """Return a structure with its leaves; torch's own function makes tuples of `torch.Size`."""
    if tree.is_leaf():
        return flat[0]
    parts, at = [], 0
    for child in tree.children():
        parts.append(unflattened(flat[at:at + child.num_leaves], child))
        at += child.num_leaves
    if tree.type is torch.Size:
        return torch.Size(parts)
    return pytree.SUPPORTED_NODES[tree.type].unflatten_fn(parts, tree.context)


def same_classes(one: Any, other: Any) -> bool:
    """Return whether two structures have containers of the same classes, at all depths."""
    if type(one) is not type(other):
        return False
    ours, theirs = _parts(one), _parts(other)
    if len(ours) == 1 and ours[0] is one:
        return True
    return len(ours) == len(theirs) and all(map(same_classes, ours, theirs))


def containers(whole: Any) -> list[Any]:
    """Return all containers of a structure, itself first."""
    parts = _parts(whole)
    if len(parts) == 1 and parts[0] is whole:
        return []
    return [whole, *(found for part in parts for found in containers(part))]


def _parts(whole: Any) -> list[Any]:
    """Return what a container holds; of anything else itself."""
    found: list[Any] = pytree.tree_leaves(whole, is_leaf=lambda part: part is not whole)
    return found


def flatten_call(args: Sequence[Any], kwargs: Mapping[str, Any]) -> tuple[list[Any], str]:
    """Flatten arguments, keyword arguments in the order of their names; structure as text."""
    return flatten((tuple(args), dict(sorted(kwargs.items()))))


def flatten(nested: Any) -> tuple[list[Any], str]:
    """
    Flatten nested containers to their leaves and the text of their structure.

    A container whose class has no name in `torch.utils._pytree` becomes a
    tuple, with a warning.
    """
    leaves, tree = pytree.tree_flatten(nested)
    if not _has_text(tree):
        tree = pytree.tree_structure(_plain(nested))
    return leaves, pytree.treespec_dumps(tree)


def load_tree(text: str) -> Tree:
    """
    Return the structure that a text describes.

    :raises GraphFormatError: if the text is malformed or names a class that this process does not
        know.
    """
    check_tree(text)
    try:
        return pytree.treespec_loads(text)
    except Exception as error:
        raise GraphFormatError(f'structure cannot be rebuilt: {error}') from error


def check_tree(text: str) -> int:
    """
    Check the text of a structure and return the count of its leaves; nothing is imported.

    :raises GraphFormatError: if the text is malformed, or would make torch import modules that it
        names.
    """
    try:
        protocol, node = parse_json(text)
    except (ValueError, TypeError) as error:
        raise GraphFormatError(f'structure is not a pair of protocol and node: {error}') from error
    if protocol != 1:
        raise GraphFormatError(f'structure has unknown protocol {protocol!r}')
    return _check_node(node)


_NODE_KEYS = {'type', 'context', 'children_spec'}
_IMPORTING = ('__enum__', 'default_factory_module')
_KEYED = ('builtins.dict', 'collections.OrderedDict')


def _keys_fit(context: Any, count: int) -> bool:
    try:
        keys = parse_json(context)
    except (TypeError, ValueError):
        return False
    return (isinstance(keys, list) and len(keys) == count
            and all(isinstance(key, (str, int)) for key in keys))


def _check_node(node: Any) -> int:
    if not isinstance(node, dict) or set(node) != _NODE_KEYS:
        raise GraphFormatError('structure holds a node with other keys than a node has')
    kind, context, children = node['type'], node['context'], node['children_spec']
    if not isinstance(children, list):
        raise GraphFormatError('structure holds a node whose children are not a list')
    if kind is None:
        if context is not None or children:
            raise GraphFormatError('structure holds a leaf that has parts')
        return 1
    if not isinstance(kind, str) or kind == 'collections.defaultdict':
        raise GraphFormatError(f'structure holds a node of forbidden type {kind!r}')
    if any(word in json.dumps(context) for word in _IMPORTING):
        raise GraphFormatError(f'structure holds a {kind} that names modules to import')
    if kind in _KEYED and not _keys_fit(context, len(children)):
        raise GraphFormatError(f'structure holds a {kind} whose keys are not plain names')
    return sum(_check_node(child) for child in children)


def _has_text(tree: Tree) -> bool:
    """Return whether a structure comes back from its text: an enumerated key may not."""
    try:
        text = pytree.treespec_dumps(tree)
        check_tree(text)
        return bool(pytree.treespec_loads(text) == tree)
    except (NotImplementedError, TypeError, GraphFormatError):
        return False


def _plain(nested: Any) -> Any:
    """Replace containers that cannot be written as text by plain ones."""
    parts, shallow = pytree.tree_flatten(nested, is_leaf=lambda part: part is not nested)
    if len(parts) == 1 and parts[0] is nested:
        return nested
    parts = [_plain(part) for part in parts]
    if isinstance(nested, defaultdict):
        return dict(zip(nested, parts))
    if _has_text(shallow):
        return pytree.tree_unflatten(parts, shallow)
    warnings.warn(
        f'{type(nested).__name__} cannot be written as text: the captured model has a plain tuple '
        'in its place (to keep it, register it with a serialized_type_name in '
        'torch.utils._pytree)', stacklevel=2)
    return tuple(parts)
