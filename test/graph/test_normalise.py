# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""Every pass of the normalisation leaves the result as it is, and takes away what it should."""
from __future__ import annotations

from collections.abc import Callable
from typing import Any

from graph.nets import Function, kinds, worst_difference
import pytest
import torch
from torch import nn
from torch.nn import functional as F

from intradp_ros.graph import constants
from intradp_ros.graph.capture import capture
from intradp_ros.graph.constants import fold_constants
from intradp_ros.graph.no_operations import drop_no_operations, reshape_views
from intradp_ros.graph.operator_graph import Operator, OperatorGraph, ParameterRef, Value, ValueRef
from intradp_ros.graph.reference_evaluation import run_graph
from intradp_ros.graph.rewrite import rebuild

Tensor = torch.Tensor


@pytest.mark.parametrize('function', [
    lambda x: F.dropout(x, 0.5, training=False),
    lambda x: F.feature_alpha_dropout(x, 0.5, training=False),
    lambda x: x.detach().clone().contiguous(),
    lambda x: x.to(torch.float32).type_as(x),
    lambda x: x.permute(0, 1, 2).view(2, 3, 4).expand(2, 3, 4)[:, :, 0:4],
    lambda x: F.pad(x, (0, 0)),
    lambda x: torch.zeros(2, 3, 4).copy_(x),
    lambda x: x.squeeze(1).reshape(x.shape),
])
def test_operators_that_change_nothing_go(function: Callable[[Tensor], Tensor]) -> None:
    x = torch.randn(2, 3, 4)
    model = Function(lambda x: torch.relu(function(x)) * 2)
    graph = capture(model, x)
    assert kinds(graph) == ['relu', 'mul']
    assert worst_difference(graph, model, x) == 0


@pytest.mark.parametrize(('function', 'kept'), [
    (lambda x: x.double(), '_to_copy'),
    (lambda x: x.permute(1, 0, 2), 'permute'),
    (lambda x: F.pad(x, (1, -1)), 'pad'),
    (lambda x: x[:, ::2], 'slice'),
    (lambda x: x.expand(5, 2, 2, 4), 'expand'),
    (lambda x: torch.zeros(3, 2, 2, 4).copy_(x), 'copy'),
    (lambda x: x.view(torch.int32), 'view'),
    (lambda x: x.reshape(4, 4), 'reshape'),
])
def test_operators_that_change_something_stay(
        function: Callable[[Tensor], Tensor], kept: str) -> None:
    x = torch.randn(2, 2, 4)
    graph = capture(Function(function), x)
    assert kept in kinds(graph)
    assert worst_difference(graph, Function(function), x) == 0


def test_an_input_may_be_a_result() -> None:
    graph = capture(Function(lambda x: (x.clone(), x, x + 1)), torch.randn(3))
    assert graph.outputs[0] == graph.outputs[1] == ValueRef(graph.inputs[0])
    assert kinds(graph) == ['add']


def test_conversion_to_the_dtype_of_a_value_does_not_read_it() -> None:
    x = torch.randn(2, 3)
    model = Function(lambda x: (x > 0).type_as(torch.relu(x)) * 2)
    graph = capture(model, x)
    assert kinds(graph) == ['gt', '_to_copy', 'mul']
    assert worst_difference(graph, model, x) == 0


@pytest.mark.parametrize(('function', 'kept'), [
    (lambda x: x * x.amax(1, keepdim=True).expand(-1, 3, -1), ['amax', 'mul']),
    (lambda x: torch.where(x.amax((0, 1)).expand(2, 3, 4) > 0.5, x, 1.0),
     ['amax', 'expand', 'gt', 'where']),
    (lambda x: x.amax((0, 1), keepdim=True).expand_as(x).exp(), ['amax', 'expand', 'exp']),
    (lambda x: torch.cat([x, x.amax(1, keepdim=True).expand(-1, 3, -1)]),
     ['amax', 'expand', 'cat']),
    (lambda x: x[:, :1].expand(2, 3, 4) + x[..., :1].expand(2, 3, 4), ['slice', 'slice', 'add']),
    (lambda x: x[:, :1].expand(2, 3, 4) + x[:, 1:2].expand(2, 3, 4),
     ['slice', 'expand', 'slice', 'expand', 'add']),
])
def test_expansions_go_where_broadcasting_does_the_same(
        function: Callable[[Tensor], Tensor], kept: list[str]) -> None:
    x = torch.randn(2, 3, 4)
    model = Function(function)
    graph = capture(model, x)
    assert kinds(graph) == kept
    assert worst_difference(graph, model, x) == 0


def test_reshape_works_for_strides_that_a_view_refuses() -> None:
    x = torch.randn(2, 3, 4, 5)
    graph = capture(Function(lambda x: torch.relu(x).view(2, 12, 5)), x)
    other = x.to(memory_format=torch.channels_last)
    assert torch.equal(run_graph(graph, [other])[0], run_graph(graph, [x])[0])
    assert 'view' not in kinds(graph)


def test_a_copy_that_a_view_needed_goes_with_the_view() -> None:
    graph = capture(Function(lambda x: x.t().contiguous().view(-1) * 2), torch.randn(3, 4))
    assert kinds(graph) in (['t', 'reshape', 'mul'], ['permute', 'reshape', 'mul'],
                            ['transpose', 'reshape', 'mul'])


def test_what_reads_only_the_shape_of_an_input_is_a_constant() -> None:
    graph = capture(Function(lambda x: x + torch.full_like(x, 3) + x.new_ones(4)),
                    torch.randn(3, 4))
    assert kinds(graph) == ['add', 'add']
    assert all(len(op.parameters) == 1 for op in graph.operators)


def test_results_that_do_not_depend_on_the_input() -> None:
    graph = capture(Function(lambda x: (x * 2, torch.arange(4) * 2)), torch.randn(3))
    assert isinstance(graph.outputs[1], ParameterRef)
    assert torch.equal(run_graph(graph, [torch.randn(3)])[1], torch.arange(4) * 2)


def test_constants_do_not_grow_without_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(constants, 'LARGEST_CONSTANT', 100)
    model = Function(lambda x: x + torch.arange(5.0).reshape(5, 1) * torch.ones(1, 100))
    graph = capture(model, torch.randn(5, 100))
    assert kinds(graph).count('mul') == 1
    assert all(t.nbytes <= 400 for t in graph.parameters.values())
    assert worst_difference(graph, model, torch.randn(5, 100)) == 0


def test_dead_operators_results_and_parameters_go() -> None:
    class Unused(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.used, self.unused = nn.Linear(4, 4), nn.Linear(4, 4)

        def forward(self, x: Tensor, y: Tensor) -> Tensor:
            self.unused(x).exp()
            largest, _ = self.used(x).max(1)
            return largest

    graph = capture(Unused(), (torch.randn(2, 4), torch.randn(7)))
    assert kinds(graph)[-2:] == ['linear', 'max']
    assert graph.operators[-1].outputs[1:] == (None,)
    assert set(graph.parameters) == {'used.weight', 'used.bias'}
    assert len(graph.inputs) == 2


@pytest.mark.parametrize('dims', [1, 2, 3])
def test_convolutions_of_traced_models_get_their_names(dims: int) -> None:
    forth = getattr(nn, f'Conv{dims}d')(2, 4, 3, stride=2, padding=1, bias=False)
    back = getattr(nn, f'ConvTranspose{dims}d')(4, 6, 3, 2, 1, output_padding=1, groups=2)
    x = torch.randn(1, 2, *[8, 6, 4][:dims])
    model = nn.Sequential(torch.jit.trace(nn.Sequential(forth, nn.ReLU(), back), x))
    graph = capture(model, x)
    assert kinds(graph) == [f'conv{dims}d', 'relu', f'conv_transpose{dims}d']
    assert worst_difference(graph, model, x) == 0


def hand_made(*operators: Operator, outputs: tuple[Any, ...]) -> OperatorGraph:
    count = 1 + sum(v is not None for op in operators for v in op.outputs)
    values = tuple(Value(k, f'v{k}', (2, 3), torch.float32) for k in range(count))
    return OperatorGraph('made', values, operators, (0,), outputs, '', {'p': torch.ones(2, 3)})


def add(number: int, a: Any, b: Any, result: int) -> Operator:
    return Operator(number, f'add{number}', 'aten.add.Tensor', (a, b), {}, (result,))


def test_rebuild_follows_chains_and_numbers_densely() -> None:
    x, p = ValueRef(0), ParameterRef('p')
    graph = hand_made(add(0, x, p, 1), add(1, ValueRef(1), p, 2), add(2, ValueRef(2), x, 3),
                      outputs=(ValueRef(3), 'kept'))
    rebuilt = rebuild(graph, same={2: ValueRef(1), 1: x})
    assert [op.args for op in rebuilt.operators] == [(x, x)]
    assert [op.name for op in rebuilt.operators] == ['add2']
    assert rebuilt.outputs == (ValueRef(1), 'kept')
    assert [v.name for v in rebuilt.values] == ['v0', 'v3']
    assert rebuilt.parameters == {}


def test_passes_leave_a_plain_graph_alone() -> None:
    x = ValueRef(0)
    graph = hand_made(add(0, x, ParameterRef('p'), 1), outputs=(ValueRef(1),))
    for simplify in (reshape_views, drop_no_operations, fold_constants):
        assert simplify(graph) == graph


def test_random_operators_are_never_constants() -> None:
    random = Operator(0, 'noise', 'aten.rand_like.default', (ParameterRef('p'),), {}, (1,))
    graph = hand_made(random, add(1, ValueRef(0), ValueRef(1), 2), outputs=(ValueRef(2),))
    assert kinds(fold_constants(graph)) == ['rand_like', 'add']
