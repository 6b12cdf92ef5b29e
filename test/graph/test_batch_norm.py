# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""Batch normalisation disappears from graphs, and the results stay, over random settings."""
from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from graph.nets import prepared, worst_difference
from hypothesis import given, settings
from hypothesis import strategies as st
import pytest
import torch
from torch import nn

from intradp_ros.graph.batch_norm import fold_batch_norms
from intradp_ros.graph.capture import capture
from intradp_ros.graph.operator_graph import Operator, OperatorGraph, ParameterRef, Value, ValueRef
from intradp_ros.graph.reference_evaluation import run_graph

CONV = {1: nn.Conv1d, 2: nn.Conv2d, 3: nn.Conv3d}
TRANSPOSED = {1: nn.ConvTranspose1d, 2: nn.ConvTranspose2d, 3: nn.ConvTranspose3d}
NORM = {0: nn.BatchNorm1d, 1: nn.BatchNorm1d, 2: nn.BatchNorm2d, 3: nn.BatchNorm3d}


@dataclass(frozen=True)
class Setting:
    """A linear layer, the batch norm after it, and an input."""

    layer: nn.Module
    norm: nn.Module
    x: torch.Tensor


@st.composite
def linear_layers(draw: st.DrawFn) -> Setting:
    dims = draw(st.integers(0, 3))
    groups = draw(st.integers(1, 3))
    inputs, outputs = groups * draw(st.integers(1, 2)), groups * draw(st.integers(1, 3))
    bias = draw(st.booleans())
    norm = NORM[dims](
        outputs, eps=draw(st.sampled_from([1e-5, 1e-3, 0.1])), affine=draw(st.booleans()))
    batch = draw(st.integers(1, 2))
    if dims == 0:
        return Setting(nn.Linear(inputs, outputs, bias=bias), norm, torch.randn(batch, inputs))
    stride, kernel = draw(st.integers(1, 2)), draw(st.integers(1, 3))
    shared: dict[str, Any] = {
        'kernel_size': kernel, 'stride': stride, 'padding': draw(st.integers(0, kernel - 1)),
        'groups': groups, 'bias': bias, 'dilation': draw(st.integers(1, 2))}
    if draw(st.booleans()):
        layer: nn.Module = TRANSPOSED[dims](
            inputs, outputs, output_padding=draw(st.integers(0, stride - 1)), **shared)
    else:
        layer = CONV[dims](inputs, outputs, **shared)
    return Setting(layer, norm, torch.randn(batch, inputs, *[7] * dims))


def graph_of(setting: Setting, target: str, arguments: tuple[Any, ...]) -> OperatorGraph:
    """Return the un-normalised graph of layer and norm, without the cost of a capture."""
    layer, norm, x = setting.layer, setting.norm, setting.x
    with torch.no_grad():
        h = layer(x)
    tensors = {
        'w': layer.weight, 'b': layer.bias, 'gamma': norm.weight, 'beta': norm.bias,
        'mean': norm.running_mean, 'var': norm.running_var}
    held: dict[str, Any] = {
        name: None if t is None else ParameterRef(name) for name, t in tensors.items()}
    values = [Value(k, str(k), tuple(t.shape), t.dtype) for k, t in enumerate((x, h, h))]
    operators = (
        Operator(0, 'layer', target, (ValueRef(0), held['w'], held['b'], *arguments), {}, (1,)),
        Operator(1, 'norm', 'aten._native_batch_norm_legit_no_training.default',
                 (ValueRef(1), held['gamma'], held['beta'], held['mean'], held['var'], 0.1,
                  norm.eps), {}, (2, None, None)))
    return OperatorGraph(
        'net', tuple(values), operators, (0,), (ValueRef(2),), '',
        {name: t.detach() for name, t in tensors.items() if t is not None})


def call_of(layer: nn.Module) -> tuple[str, tuple[Any, ...]]:
    """Return the ATen operator of a layer, and its arguments after weight and bias."""
    if isinstance(layer, nn.Linear):
        return 'aten.linear.default', ()
    assert isinstance(layer, nn.modules.conv._ConvNd)
    stride, padding = list(layer.stride), list(layer.padding)
    dilation, groups = list(layer.dilation), layer.groups
    dims = len(stride)
    if layer.transposed:
        overload = 'default' if dims == 1 else 'input'
        return (f'aten.conv_transpose{dims}d.{overload}',
                (stride, padding, list(layer.output_padding), groups, dilation))
    return f'aten.conv{dims}d.default', (stride, padding, dilation, groups)


@settings(max_examples=120)
@given(linear_layers(), st.integers(0, 2**31), st.booleans())
def test_folding_into_the_layer_before(setting: Setting, seed: int, general: bool) -> None:
    setting = Setting(setting.layer.double(), prepared(setting.norm.double(), seed),
                      setting.x.double())
    target, arguments = call_of(setting.layer)
    if general and not isinstance(setting.layer, nn.Linear):
        layer: Any = setting.layer
        target, arguments = 'aten.convolution.default', (
            list(layer.stride), list(layer.padding), list(layer.dilation), layer.transposed,
            list(layer.output_padding), layer.groups)
    graph = graph_of(setting, target, arguments)
    folded = fold_batch_norms(graph)
    assert [op.target for op in folded.operators] == [target]
    assert set(folded.parameters) == {'layer.folded.weight', 'layer.folded.bias'}
    expected, actual = run_graph(graph, [setting.x])[0], run_graph(folded, [setting.x])[0]
    with torch.no_grad():
        assert torch.equal(expected, setting.norm(setting.layer(setting.x)))
    spread = float(expected.abs().max())
    assert float((expected - actual).abs().max()) <= 1e-12 * max(1.0, spread)


class NotOnlyRead(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer, self.norm = nn.Conv2d(2, 3, 1), nn.BatchNorm2d(3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h = self.layer(x)
        return self.norm(h) + h


class IsAResult(NotOnlyRead):
    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        h = self.layer(x)
        return self.norm(h), h


class First(NotOnlyRead):
    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.BatchNorm2d(2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layer(torch.relu(self.norm(x)))


class Twice(NotOnlyRead):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.norm(self.norm(x.repeat_interleave(3, 1)[:, :3]))


class Tokens(nn.Module):
    """Batch norm over the second of three dimensions, which the linear map does not make."""

    def __init__(self) -> None:
        super().__init__()
        self.layer, self.norm = nn.Linear(4, 2), nn.BatchNorm1d(2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.norm(self.layer(x.flatten(2)[:, :, :4]))


class DynamicWeight(NotOnlyRead):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.norm(nn.functional.conv2d(x, self.layer.weight * x.mean(), self.layer.bias))


@pytest.mark.parametrize('net', [NotOnlyRead, IsAResult, First, Twice, Tokens, DynamicWeight])
def test_where_it_cannot_be_folded_it_is_a_scale_and_a_shift(net: type[nn.Module]) -> None:
    model = prepared(net().double())
    x = torch.randn(2, 2, 4, 4, dtype=torch.float64)
    graph = capture(model, x)
    assert worst_difference(graph, model, x) <= 1e-12
    targets = [op.target for op in graph.operators]
    assert {'aten.mul.Tensor', 'aten.add.Tensor'} <= set(targets)
    assert not any('norm' in target for target in targets)
    scales = [graph.parameters[name] for name in graph.parameters if name.endswith('.scale')]
    assert scales and all(len(s.shape) >= 3 and s.shape[0] == 1 for s in scales)


def test_a_weight_that_two_layers_share_is_scaled_for_one_only() -> None:
    class Shares(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.second = nn.Conv2d(3, 3, 1), nn.Conv2d(3, 3, 1)
            self.second.weight = self.first.weight
            self.norm = nn.BatchNorm2d(3)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.second(self.norm(self.first(x)))

    model = prepared(Shares().double())
    x = torch.randn(1, 3, 4, 4, dtype=torch.float64)
    graph = capture(model, x)
    assert worst_difference(graph, model, x) <= 1e-12
    assert 'first.weight' in graph.parameters


@pytest.mark.parametrize('spoil', ['statistics', 'overflow', 'half'])
def test_what_is_no_map_in_floats_stays(spoil: str) -> None:
    norm = nn.BatchNorm2d(2, track_running_stats=spoil != 'statistics').eval()
    if spoil == 'overflow':
        norm.eps = 0.0
        norm.running_var[0] = 0
    model = nn.Sequential(nn.Conv2d(2, 2, 1), norm)
    x = torch.randn(1, 2, 3, 3)
    if spoil == 'half':
        model, x = model.bfloat16(), x.bfloat16()
    graph = capture(model, x)
    assert len(graph.operators) == 2
    assert 'norm' in graph.operators[1].target
    assert worst_difference(graph, model, x) == 0


def test_factors_do_not_depend_on_the_float_type_of_the_model() -> None:
    model = prepared(nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4)))
    x = torch.randn(1, 3, 5, 5)
    single = capture(model, x)
    double = capture(model.double(), x.double())
    for name, tensor in single.parameters.items():
        assert torch.equal(tensor, double.parameters[name].float())
