# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""A graph in double: floats that are made of integers are double, too."""
from __future__ import annotations

import torch
from torch import nn

from intradp_ros.graph.capture import capture
from intradp_ros.graph.reference_evaluation import run_graph
from intradp_ros.graph.to_float64 import double_inputs, in_double


class Places(nn.Module):
    """Samples features where their largest elements are: a quotient of integers is a place."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        best = x.flatten(2).argmax(2)
        place = torch.stack([best % x.shape[3] / x.shape[3], best // x.shape[3] / x.shape[2]], -1)
        return nn.functional.grid_sample(x, 2 * place[:, None] - 1, align_corners=False)


def test_quotients_of_integers_are_double_where_the_rest_is():
    x = torch.randn(2, 3, 7, 9, generator=torch.Generator().manual_seed(0))
    graph = capture(Places(), x)
    [narrow], [wide] = run_graph(graph, (x,)), run_graph(in_double(graph), double_inputs((x,)))
    assert wide.dtype == torch.float64
    torch.testing.assert_close(wide.float(), narrow, rtol=1e-5, atol=1e-5)
