# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""Whatever is changed of a model is noticed, and what is put back counts as unchanged."""
from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn.utils import parametrizations, prune

from intradp_ros.graph.model_watch import ModelWatch

LIMIT = 1.0


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.conv, self.norm = nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8)
        self.act, self.drop = nn.Tanh(), nn.Dropout()
        self.gain, self.settings = 2.0, {'sizes': [1, 2]}

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.drop(self.act(self.norm(self.conv(x)))) * self.gain + LIMIT


def scaled(net: Net) -> dict[str, torch.Tensor]:
    return {k: v * 2 + 1 for k, v in net.state_dict().items()}


def moving_average(net: Net) -> None:
    for p in net.parameters():
        p.data.mul_(0.9).add_(0.1)


def by_numpy(net: Net) -> None:
    net.conv.weight.detach().numpy()[...] += 1


def another_global(net: Net) -> None:
    globals()['LIMIT'] = 0.5


CHANGES: dict[str, Callable[[Net], Any]] = {
    'load_state_dict': lambda net: net.load_state_dict(scaled(net)),
    'assigned': lambda net: net.load_state_dict(scaled(net), assign=True),
    'moving average': moving_average, 'by NumPy': by_numpy, 'a global': another_global,
    'other data': lambda net: setattr(net.conv.weight, 'data', net.conv.weight.data * 2),
    'a buffer': lambda net: net.norm.running_mean.data.add_(1),
    'a layer': lambda net: setattr(net, 'act', nn.Sigmoid()),
    'training': lambda net: net.train(), 'a part in training': lambda net: net.drop.train(),
    'an attribute': lambda net: setattr(net, 'gain', 3.0),
    'inside a container': lambda net: net.settings['sizes'].append(3),
    'a setting of a layer': lambda net: setattr(net.norm, 'eps', 1e-3),
    'a hook': lambda net: net.act.register_forward_hook(lambda *call: call[-1] * 2),
    'a hook before': lambda net: net.act.register_forward_pre_hook(lambda m, x: (x[0] * 2,)),
    'a forward': lambda net: setattr(net.act, 'forward', torch.relu),
    'half precision': lambda net: net.half(),
    'pruned': lambda net: prune.l1_unstructured(net.conv, 'weight', 0.5),
    'parametrised': lambda net: parametrizations.weight_norm(net.conv),
}


@pytest.mark.parametrize('change', CHANGES)
def test_changes_are_noticed(change: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(globals(), 'LIMIT', 1.0)
    net = Net().eval()
    watch = ModelWatch(net)
    assert [watch.changed() for _ in range(3)] == [''] * 3
    CHANGES[change](net)
    assert watch.changed()


def test_what_is_put_back_counts_as_unchanged() -> None:
    net = Net().eval()
    watch, state = ModelWatch(net), {k: v.clone() for k, v in Net().state_dict().items()}
    net.train()
    assert watch.changed() == 'training'
    net.eval()
    assert not watch.changed()
    net.load_state_dict(state, assign=True)  # the same numbers elsewhere
    assert not watch.changed()
    with torch.no_grad():
        net.conv.weight.add_(1)
    assert watch.changed() == 'conv.weight'


def test_a_single_number_that_torch_does_not_count_is_found_before_long() -> None:
    net = nn.Sequential(nn.Linear(200, 200)).eval()
    watch = ModelWatch(net)
    net[0].weight.data[3, 7] = 5
    assert any(watch.changed() for _ in range(2 * net[0].weight.nbytes // 4096))


def test_a_model_may_fill_a_cache_of_its_own() -> None:
    net = Net().eval()
    net.cache = None
    watch = ModelWatch(net)
    net.cache = torch.ones(3)
    watch.accept()
    assert not watch.changed()
    net.norm.running_var.mul_(2)
    watch.accept()
    assert watch.changed()
