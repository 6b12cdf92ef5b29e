# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""Models that read numbers out of tensors: sizes that no input has a part in are constants."""
from __future__ import annotations

import pytest
import torch
from torch import nn

from intradp_ros.graph.capture import capture
from intradp_ros.graph.graph_errors import CaptureError
from intradp_ros.graph.reference_evaluation import run_graph

X = torch.rand(1, 3, 10, 6, generator=torch.Generator().manual_seed(0))
OTHER = torch.rand(1, 3, 10, 6, generator=torch.Generator().manual_seed(1))


class SizesInTensor(nn.Module):
    """Keeps sizes in a tensor, written in place, and splits by them (as D-FINE does)."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        sizes = torch.empty((2, 2), dtype=torch.long)
        for level in range(2):
            sizes[level, 0] = x.shape[2] // 2 - 1 + 2 * level
            sizes[level, 1] = 1
        above, below = x.split([height * width for height, width in sizes], dim=2)
        return above.sum(2) - below.mean(2)


class NumberInBuffer(nn.Module):
    """Reads how many rows to take from a buffer."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer('rows', torch.tensor(4))
        self.conv = nn.Conv2d(3, 2, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.conv(x[:, :, :self.rows.item()])


class NumberInInput(nn.Module):
    """Takes as many rows as an input says."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x[:, :, :int(x.sum().item()) % 5 + 1]


#: Whether exporting goes on where a size comes out of a tensor, so that it can be settled.
EXPORTS_SIZES = tuple(map(int, torch.__version__.split('.')[:2])) > (2, 6)


@pytest.mark.skipif(EXPORTS_SIZES, reason='they are settled')
@pytest.mark.parametrize('model', [SizesInTensor(), NumberInBuffer()])
@torch.no_grad()
def test_torch_that_exports_no_such_sizes_runs_the_model_whole(model: nn.Module) -> None:
    """Torch 2.6: exact, on one side, and reported."""
    with pytest.warns(UserWarning, match='captured as one operator'):
        graph = capture(model, X)
    [result] = run_graph(graph, [OTHER])
    torch.testing.assert_close(result, model(OTHER))


@pytest.mark.skipif(not EXPORTS_SIZES, reason='export stops at them')
@pytest.mark.parametrize('model', [SizesInTensor(), NumberInBuffer()])
@torch.no_grad()
def test_sizes_without_inputs_are_constants(model: nn.Module) -> None:
    graph = capture(model, X, methods=('export',))
    [result] = run_graph(graph, [OTHER])
    torch.testing.assert_close(result, model(OTHER))
    assert not any('item' in operator.target for operator in graph.operators)


@pytest.mark.parametrize('method', ['export', 'trace'])
def test_sizes_from_inputs_are_refused(method: str) -> None:
    with pytest.raises(CaptureError, match='depends on the values of a tensor'):
        capture(NumberInInput(), X, methods=(method,))
