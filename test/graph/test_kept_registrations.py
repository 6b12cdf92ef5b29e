# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""Torch registers once what it needs to keep operators whole; graphs are those that it makes."""
from __future__ import annotations

from contextlib import nullcontext
from typing import Any

import pytest
import torch
from torch import nn
from torch._export import utils
from torch.export import exported_program

from intradp_ros.graph import capture as capturing
from intradp_ros.graph import kept_registrations
from intradp_ros.graph.serialise import digest

pytestmark = pytest.mark.skipif(not kept_registrations._KNOWN, reason='another release of torch')


class Various(nn.Module):
    """Operators that stay whole, are decomposed, and call others when they are."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Conv2d(3, 8, 3, padding='same'), nn.BatchNorm2d(8),
                                  nn.Dropout(), nn.PixelShuffle(2), nn.GroupNorm(2, 2))
        self.attention = nn.MultiheadAttention(12, 2, batch_first=True)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        rows = self.body(x).flatten(2).unflatten(2, (-1, 12)).mean(1)
        return torch.einsum('bij,bkj->bik', self.attention(rows, rows, rows)[0], rows).relu_()


def kernels() -> list[Any]:
    return [(operator, dict(operator.py_kernels), operator in kept_registrations._RULES)
            for operator in sorted(utils._collect_all_valid_cia_ops(), key=str)]


def test_graphs_are_those_of_torch_and_nothing_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(0)
    model, source = Various().eval(), torch.randn(1, 3, 6, 6)

    def captured() -> str:
        return digest(capturing.capture(model, source, methods=('export',)))
    with monkeypatch.context() as plain:
        plain.setattr(capturing, 'registered_once', nullcontext)
        wanted, left = captured(), kernels()
    kept_registrations._kept.clear()
    assert captured() == wanted and kernels() == left
    kept = list(kept_registrations._kept)
    assert captured() == wanted and kernels() == left
    assert len(kept) == 1 and kept == list(kept_registrations._kept), 'all was taken from there'
    assert exported_program._override_composite_implicit_decomp is kept_registrations._OVERRIDE
    assert utils._materialize_cpp_cia_ops is kept_registrations._LOOK_UP


def test_what_has_changed_is_not_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    """A kernel that somebody registers meanwhile is there afterwards, too."""
    linear, source = nn.Linear(3, 4).eval(), torch.randn(2, 3)
    first = digest(capturing.capture(linear, source, methods=('export',)))
    operator, key = torch.ops.aten.linear.default, torch._C.DispatchKey.Lazy
    kernel = operator.py_kernels.get(key)
    assert kernel is None
    try:
        operator.py_kernels[key] = own = lambda *args: None
        assert digest(capturing.capture(linear, source, methods=('export',))) == first
        assert operator.py_kernels[key] is own
    finally:
        operator.py_kernels.pop(key, None)
        operator._dispatch_cache.clear()
