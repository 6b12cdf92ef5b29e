# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""What stands in for a model's forward, over an in-process pair: results, or calls as before."""
from __future__ import annotations

from collections.abc import Callable, Iterator
import os
import signal
from typing import Any

import pytest
from sharing import sharing_pair
import torch
from torch import nn

from intradp_ros.nodes.sharing import intradp
from intradp_ros.systems.sharing.session.pair import Pair


def source(seed: int = 0) -> torch.Tensor:
    return torch.randn(1, 3, 24, 16, generator=torch.Generator().manual_seed(seed))


class Asking(nn.Module):
    """A model that asks its input for more than its numbers."""

    def __init__(self, ask: Callable[[Any], bool]) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.body, self.ask = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.ReLU(),
                                            nn.Conv2d(8, 3, 3, padding=1), nn.Tanh()), ask

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y: torch.Tensor = self.body(x)
        return -y if self.ask(x) else y


@pytest.fixture
def shared(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[nn.Module], intradp.IntraDP]]:
    """Return what shares a model with a server in this process."""
    pairs: list[Pair] = []
    begun: list[intradp.IntraDP] = []

    def connect(self: Any, model: Any, *_: Any) -> None:
        pairs.append(sharing_pair(model))
        self.client = pairs[-1].robot

    def begin(model: nn.Module) -> intradp.IntraDP:
        begun.append(intradp.IntraDP(server='nobody'))
        begun[-1].start_client(model)
        model(source())
        assert begun[-1].wait_prepared(), 'not captured'
        return begun[-1]

    monkeypatch.setattr(intradp, 'profile_model', lambda *args, **options: None)
    monkeypatch.setattr(intradp._SharedForward, '_connect', connect)
    try:
        with torch.no_grad():
            yield begin
    finally:
        for each in begun:
            each.stop()
        for pair in pairs:
            pair.server.close()


ASKED: dict[str, tuple[Callable[[torch.Tensor], bool], Callable[[], torch.Tensor]]] = {
    'how it lies in memory': (lambda x: not x.is_contiguous(),
                              lambda: source(1).transpose(2, 3).contiguous().transpose(2, 3)),
    'whether it is a view': (lambda x: x._is_view(), lambda: torch.cat([source(1)] * 2)[1:]),
    'whether it needs gradients': (lambda x: x.requires_grad,
                                   lambda: source(1).requires_grad_()),
    'its attributes': (lambda x: hasattr(x, 'stamp'), lambda: stamped(source(1)))}


def stamped(x: Any) -> torch.Tensor:
    x.stamp = 1.0
    return x  # type: ignore[no-any-return]


@pytest.mark.parametrize('what', ASKED)
def test_inputs_that_the_model_treats_in_another_way_run_as_before(
        what: str, shared: Callable[[nn.Module], intradp.IntraDP]) -> None:
    ask, other = ASKED[what]
    model, own = Asking(ask).eval(), Asking(ask).eval()
    idp = shared(model)
    torch.testing.assert_close(model(source(2)), own(source(2)))
    assert idp.last is not None
    idp.last = None
    with pytest.warns(RuntimeWarning, match='as before'):
        for _ in range(3):
            torch.testing.assert_close(model(other()), own(other()))
    assert idp.last is None
    model(source(2))
    assert idp.last is not None


@pytest.mark.parametrize('what', [*ASKED][:3])
def test_inputs_that_it_treats_alike_are_shared(
        what: str, shared: Callable[[nn.Module], intradp.IntraDP]) -> None:
    model, own = Asking(lambda x: False).eval(), Asking(lambda x: False).eval()
    idp = shared(model)
    for _ in range(2):
        torch.testing.assert_close(model(ASKED[what][1]()), own(ASKED[what][1]()))
    assert idp.last is not None


def test_a_frozen_program_is_shared_or_runs_as_before(
        shared: Callable[[nn.Module], intradp.IntraDP]) -> None:
    """It has no `training`."""
    model = Asking(lambda x: False).eval()
    frozen = torch.jit.freeze(torch.jit.trace(model, source()))
    idp = shared(frozen)
    torch.testing.assert_close(frozen(source(2)), model(source(2)))
    idp.stop()
    torch.testing.assert_close(frozen(source(3)), model(source(3)))


class Static(nn.Module):
    gain = 2.0

    @staticmethod
    def forward(x: torch.Tensor) -> torch.Tensor:
        return torch.sin(torch.cos(x * 2 + torch.sin(x)) * 3)


def test_a_forward_that_is_no_method(shared: Callable[[nn.Module], intradp.IntraDP]) -> None:
    model = Static().eval()
    idp = shared(model)
    torch.testing.assert_close(model(source(1)), Static.forward(source(1)))
    assert idp.last is not None


class Calling(Static):
    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        y: torch.Tensor = super().__call__(x)
        return y * 2


def test_a_class_with_a_call_of_its_own_runs_as_before() -> None:
    idp = intradp.IntraDP(server='nobody')
    model = Calling().eval()
    idp.start_client(model)
    try:
        with pytest.warns(RuntimeWarning, match='Calling defines __call__'):
            torch.testing.assert_close(model(source(1)), Static.forward(source(1)) * 2)
        assert not idp.wait_prepared(1.0)
    finally:
        idp.stop()


class Equal(Asking):
    def __eq__(self, other: object) -> bool:
        return isinstance(other, Equal)


class Quantised(Asking):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.quantize_per_tensor(self.body(x), 0.1, 10, torch.quint8)


@pytest.mark.parametrize(('kind', 'says'), [(Equal, 'list the parts of Equal'),
                                            (Quantised, 'returns a quantised tensor')])
def test_models_that_cannot_be_shared_run_as_before(kind: type[Asking], says: str) -> None:
    model, own = kind(lambda x: False), kind(lambda x: False)
    idp = intradp.IntraDP(server='nobody')
    with torch.no_grad(), pytest.warns(RuntimeWarning, match=says):
        idp.start_client(model)
        for seed in range(3):
            assert torch.equal(model(source(seed)).dequantize(), own(source(seed)).dequantize())
    idp.stop()


def test_what_is_written_to_the_class_of_a_model_is_written_to_its_own(
        shared: Callable[[nn.Module], intradp.IntraDP]) -> None:
    class Gained(Asking):
        gain = 1.0

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return super().forward(x) * self.gain
    model, own = (Gained(lambda x: False).eval() for _ in range(2))
    shared(model)
    with pytest.warns(RuntimeWarning, match='no longer what was captured'):
        type(model).gain = 3.0
        torch.testing.assert_close(model(source(1)), own(source(1)))
    assert Gained.gain == 3.0


def test_a_fork_of_the_program_runs_as_before(
        shared: Callable[[nn.Module], intradp.IntraDP]) -> None:
    """It has no thread that hears the server."""
    model, own = (Asking(lambda x: False).eval() for _ in range(2))
    idp = shared(model)
    child = os.fork()
    if not child:
        signal.alarm(30)
        torch.set_num_threads(1)  # OpenMP has none in a fork
        same = torch.allclose(model(source(1)), own(source(1)), atol=1e-4) and idp.last is None
        idp.stop()
        os._exit(0 if same else 1)
    assert os.waitpid(child, 0)[1] == 0


def test_another_that_shares_a_model_ends_the_one_before(
        shared: Callable[[nn.Module], intradp.IntraDP]) -> None:
    """As when a cell of a notebook is run again."""
    model, own = (Asking(lambda x: False).eval() for _ in range(2))
    before = shared(model)
    with pytest.warns(RuntimeWarning, match='shared by another IntraDP'):
        idp = shared(model)
    torch.testing.assert_close(model(source(1)), own(source(1)))
    assert idp.last is not None and before.last is None
    before.stop()
    idp.stop()
    assert type(model) is Asking
