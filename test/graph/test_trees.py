# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""Nested arguments and results: flattened for the graph, rebuilt for the caller."""
from __future__ import annotations

from collections import defaultdict, deque, namedtuple, OrderedDict
import enum
from typing import Any

from graph.nets import captured, Heads, prepared
from hypothesis import given
from hypothesis import strategies as st
import pytest
import torch
from torch import nn
from torch.utils import _pytree as pytree

from intradp_ros.graph.capture import capture
from intradp_ros.graph.graph_errors import GraphFormatError
from intradp_ros.graph.reference_evaluation import run_graph
from intradp_ros.graph.trees import (
    check_tree,
    flatten,
    load_tree,
    rebuild_outputs,
    same_classes,
)

Pair = namedtuple('Pair', ['first', 'second'])


class Colour(enum.Enum):
    RED = 1


nested = st.recursive(
    st.one_of(st.none(), st.integers(), st.text(max_size=3)),
    lambda parts: st.one_of(
        st.lists(parts, max_size=3), st.lists(parts, max_size=3).map(tuple),
        st.dictionaries(st.text(max_size=3) | st.integers(), parts, max_size=3),
        st.lists(st.tuples(st.text(max_size=3), parts), max_size=3).map(OrderedDict),
        st.lists(parts, max_size=3).map(deque)),
    max_leaves=10)


@given(nested)
def test_structures_survive_as_text(tree: Any) -> None:
    leaves, text = flatten(tree)
    assert check_tree(text) == len(leaves)
    again = pytree.tree_unflatten(leaves, load_tree(text))
    assert again == tree
    assert type(again) is type(tree)


@pytest.mark.parametrize(('tree', 'plain', 'name'), [
    (Pair(1, [Pair(2, 3)]), (1, [(2, 3)]), 'Pair'),
    ({Colour.RED: 1, 'x': 2}, (1, 2), 'dict'),
    ([torch.return_types.max((1, 2))], [(1, 2)], 'max'),
])
def test_what_has_no_text_becomes_a_tuple_and_says_so(tree: Any, plain: Any, name: str) -> None:
    with pytest.warns(UserWarning, match=f'{name} cannot be written as text'):
        leaves, text = flatten(tree)
    assert pytree.tree_unflatten(leaves, load_tree(text)) == plain


def test_a_defaultdict_becomes_a_dict() -> None:
    leaves, text = flatten(defaultdict(list, {'a': 1}))
    again = pytree.tree_unflatten(leaves, load_tree(text))
    assert again == {'a': 1}
    assert type(again) is dict


@pytest.mark.parametrize('text', ['', 'null', '[1]', '[1, 2]', '[1, null]', '[' * 5000])
def test_texts_that_are_no_structures_are_refused(text: str) -> None:
    with pytest.raises(GraphFormatError):
        load_tree(text)


def test_a_class_that_is_unknown_here_is_refused_only_when_rebuilt() -> None:
    text = '[1, {"type": "their.Result", "context": "null", "children_spec": []}]'
    assert check_tree(text) == 0
    with pytest.raises(GraphFormatError, match='their.Result'):
        load_tree(text)


def test_results_are_rebuilt() -> None:
    model = prepared(Heads())
    x = torch.randn(1, 3, 6, 6)
    graph = captured(model, x)
    result = rebuild_outputs(graph, run_graph(graph, [x]))
    with torch.no_grad():
        expected = model(x)
    assert list(result) == list(expected)
    assert isinstance(result['maps'], list)
    assert isinstance(result['best'], tuple)
    torch.testing.assert_close(result, expected)


class Paired(nn.Module):
    def forward(self, x: torch.Tensor) -> Pair:
        return Pair(x + 1, x * 2)


def test_a_result_of_an_unnamed_class_is_a_tuple() -> None:
    with pytest.warns(UserWarning, match='Pair cannot be written as text'):
        graph = captured(Paired(), torch.ones(2))
    result = rebuild_outputs(graph, run_graph(graph, [torch.ones(2)]))
    assert type(result) is tuple
    torch.testing.assert_close(result, (torch.full((2,), 2.0), torch.full((2,), 2.0)))


def test_sizes_stay_sizes_at_all_depths() -> None:
    class Sized(nn.Module):
        def forward(self, x: torch.Tensor) -> Any:
            y = x * 2
            return {'y': y, 'size': y.shape, 'deep': [(y.shape, 3), {'k': y.size()}]}

    graph = capture(Sized(), (torch.zeros(1, 3, 2, 2),))
    rebuilt = rebuild_outputs(graph, [torch.zeros(1), *graph.outputs[1:]])
    assert type(rebuilt['size']) is torch.Size and rebuilt['size'] == (1, 3, 2, 2)
    assert type(rebuilt['deep'][0][0]) is type(rebuilt['deep'][1]['k']) is torch.Size
    assert same_classes(rebuilt, {**rebuilt, 'size': torch.Size([5, 5, 5, 5])})
    assert not same_classes(rebuilt, {**rebuilt, 'size': (5, 5, 5, 5)})
