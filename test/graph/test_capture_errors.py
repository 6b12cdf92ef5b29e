# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""A model that cannot be captured is refused with a message that names the culprit."""
from __future__ import annotations

import copy
import json
from pathlib import Path
import re
from typing import Any, cast

from graph.nets import prepared, UNet
import pytest
import torch
from torch import nn
from torch.nn import functional as F

from intradp_ros.graph.capture import capture
from intradp_ros.graph.error_location import what_no_graph_says
from intradp_ros.graph.graph_errors import CaptureError
from intradp_ros.graph.reference_evaluation import run_graph

X = torch.tensor([1.0, 2.0])


class Buffered(nn.Module):
    """Keeps a registered state; subclasses say how."""

    state: torch.Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer('state', torch.zeros(2))


class AddsInPlace(Buffered):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.state.add_(1)
        return x * 2


class Replaces(Buffered):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.state = self.state * 0.5 + x
        return self.state


class RemembersAnAttribute(nn.Module):
    """The state of an attribute shows only after another input."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        last = getattr(self, 'last', x)
        self.last = x
        return x + last


class Trains(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.BatchNorm1d(2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return F.batch_norm(x.expand(3, 2), self.norm.running_mean, self.norm.running_var,
                            training=True)


class StaysInTraining(nn.BatchNorm1d):
    def train(self, mode: bool = True) -> StaysInTraining:
        return super().train(True)


@pytest.mark.parametrize(('model', 'example', 'message'), [
    (AddsInPlace(), X, "writes its parameter or buffer 'state'"),
    (Replaces(), X, "writes its parameter or buffer 'state'"),
    (Trains(), X, "writes its parameter or buffer 'norm.running_mean'"),
    (StaysInTraining(2), torch.randn(3, 2), r'still in training mode: StaysInTraining'),
    (RemembersAnAttribute(), X, 'keeps state from call to call'),
], ids=lambda item: type(item).__name__)
def test_state_is_refused(model: nn.Module, example: torch.Tensor, message: str) -> None:
    with pytest.raises(CaptureError, match=message):
        capture(model, example)


class Noisy(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + torch.randn(2)


def test_random_numbers_are_refused_by_the_name_of_their_operator() -> None:
    with pytest.raises(CaptureError, match=r'draws random numbers \(aten.randn.default\)'):
        capture(Noisy(), X)


def test_a_wrong_shape_names_input_submodule_and_line() -> None:
    with pytest.raises(CaptureError) as caught:
        capture(prepared(UNet()), torch.randn(1, 4, 16, 16))
    message = str(caught.value)
    assert 'x: float32[1, 4, 16, 16]' in message
    assert "'down1.0' (Conv2d)" in message
    assert 'expected input' in message
    assert f'{Path(__file__).with_name("nets.py").name}:' in message


class ReadsBadJson(nn.Module):
    def forward(self, x: torch.Tensor) -> Any:
        return json.loads('no JSON')


def test_the_line_named_is_the_users() -> None:
    with pytest.raises(CaptureError, match=r'ReadsBadJson at test_capture_errors.py:\d+: JSON'):
        capture(ReadsBadJson(), X)


def test_a_wrong_dtype_names_input_and_submodule() -> None:
    with pytest.raises(CaptureError, match=r'x: float64\[1, 3, 16, 16\].*down1.0'):
        capture(prepared(UNet()), torch.randn(1, 3, 16, 16, dtype=torch.float64))


def test_another_device_is_named_with_what_is_there() -> None:
    with pytest.raises(CaptureError, match="input 'input' is on device meta; move"):
        capture(nn.Linear(2, 2), X.to('meta'))
    with pytest.raises(CaptureError, match="parameter 'weight' is on device meta; move"):
        capture(nn.Linear(2, 2, device='meta'), X)


class Returns(nn.Module):
    def __init__(self, result: Any) -> None:
        super().__init__()
        self.result = result

    def forward(self, x: torch.Tensor) -> Any:
        return self.result


@pytest.mark.parametrize(('result', 'message'), [
    (3, 'returns no tensor'),
    ({'a': [None]}, 'returns no tensor'),
    (object(), 'returns a object, whose tensors cannot be found'),
])
def test_results_without_tensors_are_refused(result: Any, message: str) -> None:
    with pytest.raises(CaptureError, match=message):
        capture(Returns(result), X)


@pytest.mark.parametrize(('example', 'message'), [
    ((), 'the example holds no tensor'),
    ((3.0,), 'the example holds no tensor'),
    (([X, object()],), r"input 'x.1' is a object"),
])
def test_examples_that_are_no_inputs_are_refused(example: Any, message: str) -> None:
    with pytest.raises(CaptureError, match=message):
        capture(nn.Identity() if not example else Returns(X), example)


class Doubled(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        return x * 2


def _gradient(x: torch.Tensor) -> torch.Tensor:
    with torch.enable_grad():
        x = x.clone().requires_grad_()
        return torch.autograd.grad(x.sin().sum(), x)[0]


def _of_each_row(x: torch.Tensor) -> torch.Tensor:
    return torch.vmap(lambda row: row * row.sum(), out_dims=1)(x).T


class Calls(nn.Module):
    """What `function` computes."""

    def __init__(self, function: Any) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: torch.Tensor) -> Any:
        return self.function(x)


class Inner(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * float(x[0])


class PicksPositive(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x[x > 0]


class LeavesTorch(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.from_numpy(x.numpy() * 2)


class ReadsMemory(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.as_strided(x * 2, (2, 1), (1, 1))


@pytest.mark.parametrize('method', ['export', 'trace'])
@pytest.mark.parametrize(('model', 'message'), [
    (nn.Sequential(nn.ReLU(), Inner()), r"'1' \(Inner\) at test_capture_errors.py:\d+: a cond"),
    (PicksPositive(), r"operator 'index' \(aten.index.Tensor\) yields a number or a size"),
    (LeavesTorch(), r'LeavesTorch at test_capture_errors.py:\d+: RuntimeError: .*numpy'),
    (ReadsMemory(), r"operator 'as_strided' .* depends on how its input lies in memory"),
], ids=lambda item: type(item).__name__)
def test_what_no_graph_can_say_is_named(model: nn.Module, message: str, method: str) -> None:
    with pytest.raises(CaptureError, match=message):
        capture(model, X, methods=(method,))


class KnowsItIsExported(nn.Module):
    def forward(self, x: torch.Tensor) -> Any:
        return x * 2 if torch.compiler.is_compiling() else x


def test_a_graph_that_computes_something_else_is_refused() -> None:
    with pytest.raises(CaptureError, match='the graph computes something else than the model'):
        capture(KnowsItIsExported(), X, methods=('export',))


class ReturnsMoreWhenExported(nn.Module):
    def forward(self, x: torch.Tensor) -> Any:
        return (x, x) if torch.compiler.is_compiling() else x


def test_a_graph_with_other_results_is_refused() -> None:
    with pytest.raises(CaptureError, match='the graph has 2 results, the model 1'):
        capture(ReturnsMoreWhenExported(), X, methods=('export',))


def test_a_model_that_cannot_be_copied_is_refused() -> None:
    class Stubborn(nn.Identity):
        def __deepcopy__(self, memo: Any) -> Any:
            raise TypeError('no copies')

    with pytest.raises(CaptureError, match='Stubborn cannot be copied .no copies.'):
        capture(Stubborn(), X)


def test_an_unknown_method_is_refused() -> None:
    with pytest.raises(ValueError, match='there are export, trace, module'):
        capture(nn.Identity(), X, methods=('guess',))


def test_silence(capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(CaptureError):
        capture(Inner(), X, methods=('export', 'trace'))
    assert capfd.readouterr() == ('', '')


def test_traced_code_has_no_names_for_its_inputs() -> None:
    traced = torch.jit.trace(nn.Sequential(nn.Linear(2, 3), nn.ReLU()).eval(), X)
    torch.testing.assert_close(run_graph(capture(traced, X), [X])[0], traced(X))
    with pytest.raises(CaptureError, match='argument 0: float32.3.'):
        capture(traced, torch.zeros(3))


def test_quantised_layers_are_named() -> None:
    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.last = nn.Conv2d(3, 4, 3), nn.Linear(6, 5)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.last(self.first(x).relu())

    x = torch.zeros(1, 3, 8, 8)
    model = torch.ao.quantization.quantize_dynamic(Net().eval(), {nn.Linear}, dtype=torch.qint8)
    for quantised in (model, torch.jit.trace(model, x)):
        with pytest.raises(CaptureError, match='is quantised .* before quantisation'):
            capture(quantised, x, methods=('export', 'trace'))


@pytest.mark.parametrize(('function', 'says'), [
    (lambda x: torch.func.grad(lambda v: v.sin().sum())(x), 'torch.func or vmap.*torch.einsum'),
    (_of_each_row, 'torch.func or vmap'),
    (lambda x: nn.utils.rnn.pad_packed_sequence(nn.utils.rnn.pack_padded_sequence(
        x[..., None], torch.tensor([x.shape[1]] * x.shape[0]), True), True)[0] * x.sum(),
     'packs sequences.*padded tensor'),
    (_gradient, 'computes gradients.*by their formula')])
def test_what_no_graph_says_is_named_with_its_line_and_what_to_do(
        function: Any, says: str) -> None:
    said = what_no_graph_says(lambda: function(torch.rand(3, 2)))
    assert re.search(says, said)
    assert re.search(r' at test_capture_errors.py:\d+, which no graph', said)
    assert not what_no_graph_says(lambda: Doubled.apply(torch.rand(3)))


def test_a_frozen_program_is_captured_as_one_that_is_not() -> None:
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU()).eval()
    x = torch.randn(1, 3, 8, 8)
    frozen = torch.jit.freeze(torch.jit.trace(model, x))
    graph = capture(frozen, x, methods=('export', 'trace'))
    torch.testing.assert_close(run_graph(graph, (x,))[0], model(x))


def test_what_runs_as_a_whole_is_said_in_the_users_words() -> None:
    with pytest.warns(UserWarning, match=r'one operator.*: it calls torch.func or vmap at test_'):
        assert capture(Calls(_of_each_row), torch.rand(3, 2), methods=('trace', 'module')).opaque


@pytest.mark.parametrize('compiles', [
    lambda model, backend: torch.compile(model, backend=backend),
    lambda model, backend: nn.Sequential(
        cast(Any, torch.compile)(model[0], backend=backend), model[1]),
    lambda model, backend: model.compile(backend=backend) or model,
    lambda model, backend: Calls(torch.compile(model, backend=backend))])
def test_what_is_compiled_is_captured_as_it_was_written(compiles: Any) -> None:
    compiled: list[object] = []

    def backend(graph: Any, example: Any) -> Any:
        compiled.append(graph)
        return graph.forward
    plain = nn.Sequential(nn.Linear(2, 3), nn.Sigmoid()).eval()
    graph = capture(compiles(copy.deepcopy(plain), backend), X, methods=('export',))
    assert not compiled
    torch.testing.assert_close(run_graph(graph, [X])[0], plain(X))


def _sparse(layout: torch.layout) -> nn.Module:
    model = nn.Linear(2, 2)
    model.register_buffer('mask', torch.eye(2).to_sparse(layout=layout))
    return model


@pytest.mark.parametrize(('model', 'says'), [
    (lambda: nn.Sequential(nn.ReLU(), nn.LazyLinear(3)), "'1.weight' has no shape.*run the model"),
    (lambda: nn.Linear(2, 2, device='meta'), "'weight' is on device meta; .*weights are loaded"),
    (lambda: _sparse(torch.sparse_csr), "'mask' lies in memory as torch.sparse_csr.*to_dense"),
    (lambda: _sparse(torch.sparse_coo), "'mask' lies in memory as torch.sparse_coo.*to_dense")])
def test_weights_that_cannot_be_taken_are_named(model: Any, says: str) -> None:
    with pytest.raises(CaptureError, match=says):
        capture(model(), X)
