# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""A captured graph computes what the model computes, and leaves the model alone."""
from __future__ import annotations

import copy
from typing import Any
import warnings

from graph.nets import (
    Attention,
    captured,
    Heads,
    prepared,
    pytorchcv_net,
    Tables,
    Tied,
    TwoInputs,
    UNet,
    worst_difference,
    WritesInPlace,
)
import pytest
import torch
from torch import nn

from intradp_ros.graph.capture import capture
from intradp_ros.graph.graph_errors import CaptureError
from intradp_ros.graph.operator_graph import OperatorGraph, ParameterRef, ValueRef
from intradp_ros.graph.reference_evaluation import run_graph

ROUNDING = {torch.float64: 1e-12, torch.float32: 1e-5}


def image(dtype: torch.dtype = torch.float64, size: int = 16) -> torch.Tensor:
    return torch.randn(1, 3, size, size, dtype=dtype)


@pytest.fixture(autouse=True)
def _seeded() -> None:
    torch.manual_seed(0)


@pytest.mark.parametrize('dtype', ROUNDING, ids=str)
@pytest.mark.parametrize('net', [UNet, Heads, Attention])
def test_image_networks_are_reproduced(net: type[nn.Module], dtype: torch.dtype) -> None:
    model = prepared(net().to(dtype))
    graph = captured(model, image(dtype))
    assert worst_difference(graph, model, image(dtype)) <= ROUNDING[dtype]
    assert_is_well_formed(graph)


@pytest.mark.parametrize(('module', 'name', 'size'), [
    ('resnet_cifar', 'resnet20_cifar10', 32), ('densenet_cifar', 'densenet40_k12_cifar10', 32),
    ('preresnet_cifar', 'preresnet20_cifar10', 32), ('mobilenetv2', 'mobilenetv2_wd4', 224),
    ('mobilenetv3', 'mobilenetv3_small_w7d20', 224), ('shufflenetv2', 'shufflenetv2_wd2', 224)])
def test_zoo_networks_are_reproduced(module: str, name: str, size: int) -> None:
    model = prepared(pytorchcv_net(module, name).double())
    graph = captured(model, image(size=size))
    assert worst_difference(graph, model, image(size=size)) <= 1e-10
    assert_is_well_formed(graph)
    assert not any('batch_norm' in op.target for op in graph.operators)


def test_tables_and_constants_become_parameters() -> None:
    model = Tables().double()
    x = torch.randn(5, 7, dtype=torch.float64)
    graph = captured(model, x)
    assert worst_difference(graph, model, x) <= 1e-12
    assert {op.target for op in graph.operators} == {'aten.add.Tensor'}


def test_tied_parameters_are_kept_once() -> None:
    model = Tied()
    graph = captured(model, torch.randn(2, 6))
    assert sorted(graph.parameters) == ['first.bias', 'first.weight', 'second.bias']
    assert worst_difference(graph, model, torch.randn(2, 6)) <= 1e-6


def test_parameters_share_the_memory_of_the_model() -> None:
    model = Tied()
    graph = captured(model, torch.randn(2, 6))
    assert graph.parameters['first.weight'].data_ptr() == model.first.weight.data_ptr()
    assert not graph.parameters['first.weight'].requires_grad


def test_in_place_writes_become_functional() -> None:
    x = torch.randn(4, 4)
    graph = captured(WritesInPlace(), x)
    kept = x.clone()
    assert worst_difference(graph, WritesInPlace(), x) == 0
    assert torch.equal(x, kept)


def test_nested_arguments_and_constants() -> None:
    model, x, y = TwoInputs(), torch.randn(3, 4), torch.randn(3, 4)
    mask = torch.rand(3, 4) > 0.5
    graph = captured(model, x, [y, y], 2.5, kwargs={'mode': 'multiply', 'mask': mask})
    assert [graph.values[v].name for v in graph.inputs] == ['x', 'others.0', 'others.1', 'mask']
    assert [a for a in graph.arguments if not isinstance(a, ValueRef)] == [2.5, 'multiply']
    again = (torch.randn(3, 4), [y + 1, y - 1], 2.5)
    assert worst_difference(graph, model, *again, mask=~mask, mode='multiply') <= 1e-6


def test_results_keep_constants_and_buffers() -> None:
    graph = captured(prepared(Heads()), image(torch.float32))
    assert graph.outputs[-2:] == (4, None)
    assert ParameterRef('scale') in graph.outputs
    assert graph.outputs[0] == graph.outputs[5]


def test_name_is_the_class_unless_given() -> None:
    assert captured(Tied(), torch.randn(1, 6)).name == 'Tied'
    assert captured(Tied(), torch.randn(1, 6), name='small').name == 'small'


def test_a_single_tensor_is_a_single_argument() -> None:
    assert capture(Tied(), torch.randn(2, 6)).inputs == (0,)


def test_the_model_is_left_alone() -> None:
    model = prepared(UNet()).train()
    state = copy.deepcopy(model.state_dict())
    attributes = {name: set(vars(m)) for name, m in model.named_modules()}
    captured(model, image(torch.float32))
    assert all(m.training for m in model.modules())
    assert attributes == {name: set(vars(m)) for name, m in model.named_modules()}
    assert all(torch.equal(x, state[name]) for name, x in model.state_dict().items())
    assert all(not m._forward_hooks and not m._forward_pre_hooks for m in model.modules())


def test_the_caller_may_be_in_inference_mode() -> None:
    model = prepared(UNet().double())
    with torch.inference_mode():
        x = image()
        graph = captured(model, x)
        assert worst_difference(graph, model, x) <= 1e-12


class Scripted(nn.Module):
    """A part that torch.export cannot enter, but that a trace can."""

    def __init__(self) -> None:
        super().__init__()
        self.before = nn.Linear(4, 4)
        with warnings.catch_warnings():
            warnings.simplefilter('ignore', DeprecationWarning)
            self.part = torch.jit.script(nn.Sequential(nn.Linear(4, 3), nn.ReLU()))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.part(self.before(x))


def test_a_trace_takes_what_export_refuses() -> None:
    model, x = Scripted().double(), torch.randn(2, 4, dtype=torch.float64)
    graph = capture(model, x)
    assert graph.method == 'trace'
    assert [op.target.split('.')[1] for op in graph.operators] == ['linear', 'linear', 'relu']
    assert {'before.weight', 'before.bias'} < set(graph.parameters)
    assert worst_difference(graph, model, x + 1) <= 1e-12


@pytest.mark.parametrize('net', [UNet, Heads, Attention])
def test_trace_and_export_agree(net: type[nn.Module]) -> None:
    model = prepared(net().double())
    traced = capture(model, image(), methods=('trace',))
    exported = capture(model, image(), methods=('export',))
    assert [op.target for op in traced.operators] == [op.target for op in exported.operators]
    assert worst_difference(traced, model, image()) <= 1e-12


class LowersPrecision(nn.Module):
    """An autocast region: export must keep where it rounds."""

    def __init__(self) -> None:
        super().__init__()
        self.part = nn.Linear(64, 64)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        with torch.autocast('cpu', dtype=torch.bfloat16):
            return self.part(x).float()


def test_autocast_is_kept() -> None:
    model, x = LowersPrecision(), torch.randn(8, 64)
    graph = captured(model, x)
    assert worst_difference(graph, model, x) <= 1e-4
    assert worst_difference(graph, model.part, x) >= 1e-4


class Branches(nn.Module):
    """Control flow that depends on the data: no graph can stand for both branches."""

    def __init__(self) -> None:
        super().__init__()
        self.part = nn.Linear(3, 3)

    def forward(self, x: torch.Tensor) -> dict[str, torch.Tensor | int]:
        y = self.part(x)
        return {'y': y if y.sum() > 0 else y * 2, 'kind': 7}


def test_the_last_resort_is_the_model_as_one_operator() -> None:
    model = Branches()
    with pytest.warns(UserWarning, match='condition or a size depends on the values'):
        graph = capture(model, torch.randn(2, 3))
    assert [op.target for op in graph.operators] == ['module']
    for x in (torch.full((2, 3), 5.0), torch.full((2, 3), -5.0)):
        assert worst_difference(graph, model, x) == 0


def test_one_operator_sees_copies_of_its_inputs() -> None:
    x = torch.randn(4, 4)
    graph = capture(WritesInPlace(), x, methods=('module',))
    kept = x.clone()
    run_graph(graph, [x])
    assert torch.equal(x, kept)


def test_one_operator_refuses_results_that_only_look_constant() -> None:
    class Counts(nn.Module):
        def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, int]:
            return x, int((x > 0).sum())

    graph = capture(Counts(), torch.ones(3), methods=('module',))
    assert run_graph(graph, [torch.full((3,), 2.0)])[1] == 3
    with pytest.raises(RuntimeError, match='returns 0 where it returned 3'):
        run_graph(graph, [-torch.ones(3)])


def assert_is_well_formed(graph: OperatorGraph) -> None:
    """Ids are dense, everything is made before it is read, and everything is read."""
    assert [v.id for v in graph.values] == list(range(len(graph.values)))
    assert [op.id for op in graph.operators] == list(range(len(graph.operators)))
    known = set(graph.inputs)
    for operator in graph.operators:
        assert known.issuperset(operator.inputs)
        known.update(v for v in operator.outputs if v is not None)
    read = {v for op in graph.operators for v in op.inputs} | set(graph.output_values)
    assert read | set(graph.inputs) == known == set(range(len(graph.values)))
    used = {name for op in graph.operators for name in op.parameters}
    used |= {o.name for o in graph.outputs if isinstance(o, ParameterRef)}
    assert used == set(graph.parameters)


def test_selection_among_nearly_equal_numbers_is_no_other_computation() -> None:
    class BestPixels(nn.Module):
        """Numbers of the best pixels: which is better, rounding may decide."""

        def __init__(self) -> None:
            super().__init__()
            self.conv = nn.Conv2d(3, 64, 3, padding=1)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            scores = self.conv(x).mean(1).flatten()
            if not torch.compiler.is_compiling():
                scores = scores * (1 + torch.finfo(scores.dtype).eps * torch.arange(len(scores)))
            return scores.topk(200).indices.to(x.dtype)

    torch.manual_seed(0)
    x = (torch.rand(1, 3, 40, 40) * 4).round() / 4
    graph = capture(BestPixels(), x, methods=('export',))
    assert graph.method == 'export'


class Gained(nn.Module):
    """One whose copies have the gain that it was made with."""

    def __init__(self, how: str) -> None:
        super().__init__()
        self.layer, self.how, self.gain = nn.Conv2d(3, 3, 1), how, 1.0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y: torch.Tensor = self.layer(x).tanh()
        return y * getattr(self.layer.weight, 'gain', 1.0) * self.gain

    def __deepcopy__(self, memo: Any) -> nn.Module:
        if self.how == 'copies':
            return Gained(self.how)
        copied = Gained.__new__(Gained)
        vars(copied).update(copy.deepcopy(vars(self), memo))
        return copied


def test_a_model_whose_copies_are_not_like_it_is_refused() -> None:
    model, x = Gained('copies').eval(), torch.linspace(-1, 1, 48).reshape(1, 3, 4, 4)
    model.gain = 3.0
    with pytest.raises(CaptureError, match='a copy of Gained'):
        capture(model, x)
    assert model.gain == 3.0 and not model.training


def test_what_a_parameter_holds_besides_numbers_is_not_lost() -> None:
    model, x = Gained('').eval(), torch.linspace(-1, 1, 48).reshape(1, 3, 4, 4)
    vars(model.layer.weight)['gain'] = 3.0
    with pytest.raises(CaptureError, match='something else than the model'):
        capture(model, x, methods=('export', 'trace'))


def test_a_model_in_training_is_left_there() -> None:
    model, x = nn.Sequential(nn.Conv2d(3, 3, 1), nn.BatchNorm2d(3)), torch.ones(1, 3, 4, 4)
    model[0].eval()
    before = copy.deepcopy(model.state_dict())
    graph = capture(model, x)
    assert [part.training for part in model.modules()] == [True, False, True]
    assert all(torch.equal(t, before[name]) for name, t in model.state_dict().items())
    assert torch.allclose(run_graph(graph, [x])[0], model.eval()(x))


class Noting(nn.Module):
    """One that begins with a hook at its first call, and whose copies differ in a note."""

    def __init__(self) -> None:
        super().__init__()
        self.layer, self.note, self.hooked, self.seen = nn.Conv2d(3, 3, 1), object(), False, [0]

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if not self.hooked:
            self.hooked = True
            self.layer.register_forward_hook(lambda layer, given, made: made * 2)
        y: torch.Tensor = self.layer(x).tanh()
        return y

    def __deepcopy__(self, memo: Any) -> nn.Module:
        copied = Noting.__new__(Noting)
        vars(copied).update(copy.deepcopy({**vars(self), 'seen': [1]}, memo))
        return copied


def test_a_model_that_runs_itself_is_left_as_it_was() -> None:
    model, x = Noting().eval(), torch.linspace(-1, 1, 48).reshape(1, 3, 4, 4)
    graph = capture(model, x)
    assert not model.hooked and not model.layer._forward_hooks and model.seen == [0]
    assert torch.allclose(run_graph(graph, [x])[0], model(x), atol=1e-6)
