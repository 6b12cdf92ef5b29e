# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""Views in their shortest form, and pieces as slices, compute what they did."""
from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Any

from graph.nets import Function, kinds, worst_difference
from hypothesis import given, settings
from hypothesis import strategies as st
import pytest
import torch

from intradp_ros.graph.capture import capture
from intradp_ros.graph.operator_graph import Operator, OperatorGraph, Value, ValueRef
from intradp_ros.graph.rearrangement import Rearrangement
from intradp_ros.graph.reference_evaluation import run_graph
from intradp_ros.graph.view_chains import shorten_view_chains

Tensor = torch.Tensor


def windows(x: Tensor) -> Tensor:
    """Divide (1, C, H, W) into patches of 2 x 2 as MobileViT does, C merged with H on the way."""
    _, channels, height, width = x.shape
    x = x.reshape(channels * height // 2, 2, width // 2, 2).transpose(1, 2)
    x = x.reshape(1, channels, height * width // 4, 4).transpose(1, 3)
    return x.reshape(4, height * width // 4, channels)


@pytest.mark.parametrize(('function', 'kept'), [
    (windows, ['reshape', 'permute', 'reshape']),
    (lambda x: x.flatten(2).transpose(1, 2), ['reshape', 'transpose']),
    (lambda x: x.flatten(2).transpose(1, 2).unsqueeze(0), ['permute', 'reshape']),
    (lambda x: x.permute(0, 2, 3, 1).permute(0, 3, 1, 2), []),
    (lambda x: x.unsqueeze(1).squeeze(0).reshape(3, 4, 6), ['reshape']),
    (lambda x: x.view(1, 3, 12, 2).view(1, 3, 24).view(3, 8, 3), ['reshape']),
    (lambda x: x.reshape(1, 4, 3, 6).transpose(1, 2), ['reshape', 'transpose']),
    (lambda x: x.transpose(1, 2).reshape(1, 3, 4, 6).transpose(2, 3),
     ['transpose', 'reshape', 'transpose']),
    # each piece that is read is an operator
    (lambda x: x.chunk(2, 1)[0], ['slice']),
    (lambda x: x.chunk(4, 3)[-1], ['slice']),
    (lambda x: x.split(3, dim=-1)[1], ['slice']),
    (lambda x: torch.cat(x.split([1, 3, 2], dim=3)[::-1], 3), ['slice'] * 3 + ['cat']),
    (lambda x: x.unbind(2)[1], ['select']),
    (lambda x: torch.stack(x.unbind(1)[::2]), ['select'] * 2 + ['stack']),
    (lambda x: x.tensor_split(4, 3)[2], ['slice']),
])
def test_chain_is_as_short_as_can_be(
        function: Callable[[Tensor], Tensor], kept: list[str]) -> None:
    x = torch.randn(1, 3, 4, 6)
    model = Function(lambda x: torch.relu(function(torch.sigmoid(x))))
    graph = capture(model, x)
    assert kinds(graph) == ['sigmoid', *kept, 'relu']
    assert worst_difference(graph, model, x) == 0


def test_values_that_are_read_elsewhere_stay() -> None:
    def function(x: Tensor) -> tuple[Tensor, Tensor]:
        flat = torch.sigmoid(x).reshape(1, 12, 6)
        return flat.transpose(1, 2).reshape(1, 6, 3, 4).reshape(1, 2, 3, 12), flat

    model, x = Function(function), torch.randn(1, 3, 4, 6)
    graph = capture(model, x)
    assert kinds(graph) == ['sigmoid', 'reshape', 'permute', 'reshape']
    assert worst_difference(graph, model, x) == 0


@settings(max_examples=150)
@given(st.data())
def test_random_chains_compute_the_same(data: Any) -> None:
    sizes = data.draw(st.lists(st.sampled_from([1, 2, 3, 4, 6]), min_size=1, max_size=4))
    values, operators = [Value(0, 'x', tuple(sizes), torch.float64)], []
    for k in range(data.draw(st.integers(2, 6))):
        shape = values[-1].shape
        if data.draw(st.booleans()):
            order = data.draw(st.permutations(range(len(shape))))
            target, argument, shape = 'permute', order, tuple(shape[d] for d in order)
        else:
            shape = data.draw(st.sampled_from(shapes(prod(shape))))
            target, argument = 'reshape', shape
        operators.append(Operator(
            k, f'op{k}', f'aten.{target}.default', (ValueRef(k), list(argument)), {}, (k + 1,)))
        values.append(Value(k + 1, f'v{k}', shape, torch.float64))
    graph = OperatorGraph(
        'chain', tuple(values), tuple(operators), (0,), (ValueRef(len(operators)),), '', {})
    short = shorten_view_chains(graph)
    x = torch.arange(prod(sizes), dtype=torch.float64).reshape(sizes)
    (given_,), (expected,) = run_graph(short, [x]), run_graph(graph, [x])
    assert given_.shape == expected.shape
    assert torch.equal(given_, expected)
    assert len(short.operators) <= len(graph.operators)
    assert all(
        v.shape == tuple(y.shape) for v, y in zip(short.values, every_value(short, x)))


def shapes(elements: int) -> list[tuple[int, ...]]:
    """Return shapes of one to four dimensions with so many elements."""
    divisors = [n for n in range(1, elements + 1) if elements % n == 0]
    found: list[tuple[int, ...]] = [(elements,)]
    found += [(a, elements // a) for a in divisors]
    found += [(a, b, elements // a // b) for a in divisors for b in divisors
              if elements % (a * b) == 0]
    return found


def every_value(graph: OperatorGraph, x: Tensor) -> list[Tensor]:
    outputs = tuple(ValueRef(v.id) for v in graph.values)
    return run_graph(OperatorGraph(
        'all', graph.values, graph.operators, graph.inputs, outputs, '', {}), [x])


def test_factors_that_have_no_common_divisor_are_no_rearrangement() -> None:
    assert Rearrangement.of((4, 6)).reshaped((8, 3)) is not None
    assert Rearrangement.of((4, 6)).reshaped((3, 8)) is None
    assert Rearrangement.of((0, 6)).reshaped((6, 0)) is None
