# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""A module whose forward is stood in for is, for everybody else, what it was."""
from __future__ import annotations

import copy
import io
import pickle
from typing import Any

import pytest
import torch
from torch import nn

from intradp_ros.runtime.models.late_gradients import with_gradients
from intradp_ros.runtime.models.stand_in import StandIn

X = torch.linspace(-1, 1, 6).reshape(2, 3)


class Net(nn.Module):
    kinds: list[type] = []

    def __init_subclass__(cls) -> None:
        Net.kinds.append(cls)

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.layer = nn.Linear(3, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Apply the layer."""
        return self.layer(x)


class Slotted(nn.Module):
    __slots__ = ('gain',)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Multiply."""
        return x * self.gain


@pytest.fixture
def calls() -> list[Any]:
    return []


@pytest.fixture
def net(calls: list[Any]) -> Net:
    net = Net()
    StandIn(net, lambda args, kwargs: calls.append(args) or 7)
    return net


def test_calls_go_elsewhere_until_the_end(calls: list[Any]) -> None:
    net, before = Net(), dict(vars(Net()))
    stand_in = StandIn(net, lambda args, kwargs: 7)
    assert net(X) == 7 and net.forward(X) == 7
    assert torch.equal(stand_in.plain(X), net.layer(X))
    assert vars(net).keys() == before.keys() and net.__class__ is Net and isinstance(net, Net)
    assert net.forward.__doc__ == 'Apply the layer.' and not Net.kinds
    stand_in.end()
    assert type(net) is Net and torch.equal(net(X), net.layer(X))


def test_a_class_with_slots() -> None:
    net = Slotted()
    net.gain = 2.0
    stand_in = StandIn(net, lambda args, kwargs: 7)
    assert net(X) == 7 and net.__class__ is Slotted and torch.equal(stand_in.plain(X), X * 2)
    copied = copy.deepcopy(net)
    assert type(copied) is Slotted
    stand_in.end()
    assert type(net) is Slotted and torch.equal(net(X), X * 2)


def test_copies_and_files_are_of_the_class_that_the_module_has(net: Net) -> None:
    file = io.BytesIO()
    torch.save(net, file)
    file.seek(0)
    again = [copy.copy(net), copy.deepcopy(net), pickle.loads(pickle.dumps(net)),
             torch.load(file, weights_only=False)]
    for other in again:
        assert type(other) is Net and torch.equal(other(X), net.layer(X))
    assert net(X) == 7


def test_a_forward_that_somebody_put_there_stays_theirs() -> None:
    net = Net()
    net.forward = theirs = torch.relu
    stand_in = StandIn(net, lambda args, kwargs: 7)
    assert net(X) == 7 and torch.equal(stand_in.plain(X), X.relu())
    assert torch.equal(copy.deepcopy(net)(X), X.relu())
    stand_in.end()
    assert net.forward is theirs


def test_compiled_it_is_the_module_itself(net: Net, calls: list[Any]) -> None:
    compiled = torch.compile(net, backend='eager', fullgraph=True)
    assert torch.equal(compiled(X), net.layer(X)) and not calls


def test_gradients_are_those_of_the_model_twice_over() -> None:
    net = Net()
    sources = list(net.parameters())
    expected, given = net(X).square(), X.clone()
    (result,) = with_gradients([net(X).detach()], [True], sources, net, [given])
    given.zero_()  # what callers do with their input afterwards does not matter
    for a, b in ((expected, result.square()),):
        first = [torch.autograd.grad(y.sum(), sources, create_graph=True) for y in (a, b)]
        second = [torch.autograd.grad(sum(g.square().sum() for g in each), sources)
                  for each in first]
        for one, other in (*zip(*first), *zip(*second)):
            torch.testing.assert_close(one, other)


def test_gradients_of_parameters_that_changed_in_between_are_refused() -> None:
    net = Net()
    (result,) = with_gradients([net(X).detach()], [True], list(net.parameters()), net, [X])
    with torch.no_grad():
        net.layer.weight.add_(1)
    with pytest.raises(RuntimeError, match='modified by an inplace operation'):
        result.sum().backward()
