# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""Operators write over their input only where nobody can see it."""
from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from intradp_ros.graph.capture import capture
from intradp_ros.split.in_place import in_place, overwritable
from intradp_ros.split.regions.region import Region
from intradp_ros.split.split_graph import split_graph


class Net(nn.Module):
    """A convolution, then something that the case under test does with it."""

    def __init__(self, case: str) -> None:
        super().__init__()
        self.case = case
        self.conv = nn.Conv2d(3, 4, 3, padding=1)
        self.next = nn.Conv2d(4, 4, 1)

    def forward(self, x: torch.Tensor) -> object:
        y = self.conv(x)
        if self.case == 'alone':
            return F.silu(y).sum()
        if self.case == 'input':
            return F.silu(x).sum()
        if self.case == 'output':
            return y, F.silu(y)
        if self.case == 'view':
            return y.flatten(2).amax(2), F.silu(y).sum()
        if self.case == 'twice':
            return (y + y).sum()
        if self.case == 'broadcast':
            return (y.amax((2, 3), keepdim=True) * y).sum()
        return (F.hardswish(y) + self.next(F.relu6(y))).sum()


def overwriting(case: str) -> list[str]:
    split = split_graph(capture(Net(case).eval(), (torch.randn(1, 3, 8, 8),)))
    return [op.operator.target.split('.')[1] for op in split.operators
            if op.operator.id in overwritable(split)]


@pytest.mark.parametrize(('case', 'targets'), [
    ('alone', ['silu']), ('input', []), ('output', []), ('view', []), ('twice', []),
    ('broadcast', []), ('residual', ['hardswish', 'relu6', 'add'])])
def test_which_operators_may(case: str, targets: list[str]) -> None:
    assert sorted(overwriting(case)) == sorted(targets)


def test_the_result_lies_where_the_input_was() -> None:
    split = split_graph(capture(Net('alone').eval(), (torch.randn(1, 3, 8, 8),)))
    op = next(op for op in split.operators if op.operator.target == 'aten.silu.default')
    rows = torch.randn(1, 4, 3, 8)
    wanted = F.silu(rows)
    got = in_place(op, Region(2, 5), split.graph.parameters)([rows])
    assert torch.equal(got, wanted)
    assert got.data_ptr() == rows.data_ptr()
