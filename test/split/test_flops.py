# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""Counting operations, against what the modules' formulas give."""
from __future__ import annotations

from typing import Any

import pytest
from single_operator import Parameter, Single
import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from intradp_ros.graph.capture import capture
from intradp_ros.split.checks.flops import operator_flops
from intradp_ros.split.split_graph import split_graph


def flops(target: str, *args: Any) -> int:
    graph = Single(target, *args).graph
    return operator_flops(graph, graph.operators[0])


def zeros(*shape: int) -> torch.Tensor:
    return torch.zeros(shape)


@pytest.mark.parametrize(('count', 'expected'), [
    (flops('conv2d.default', zeros(1, 4, 9, 9), Parameter(zeros(6, 4, 3, 3))), 2 * 294 * 36),
    (flops('conv2d.default', zeros(1, 4, 9, 9), Parameter(zeros(4, 1, 3, 3)), None, [1, 1],
           [0, 0], [1, 1], 4), 2 * 196 * 9),
    (flops('conv_transpose2d.input', zeros(1, 4, 9, 9), Parameter(zeros(4, 6, 2, 2)), None,
           [2, 2]), 2 * 324 * 24),
    (flops('linear.default', zeros(7, 5), Parameter(zeros(3, 5))), 2 * 7 * 3 * 5),
    (flops('bmm.default', zeros(2, 7, 5), zeros(2, 5, 3)), 2 * 2 * 7 * 3 * 5),
    (flops('addmm.default', Parameter(zeros(3)), zeros(7, 5), Parameter(zeros(5, 3))), 210),
    (flops('scaled_dot_product_attention.default', zeros(1, 7, 4), zeros(1, 9, 4),
           zeros(1, 9, 6)), 2 * 7 * 9 * (4 + 6)),
    (flops('max_pool2d.default', zeros(1, 4, 8, 8), [2, 2]), 64 * 4),
    (flops('avg_pool1d.default', zeros(1, 4, 8), [4]), 8 * 4),
    (flops('einsum.default', 'bhwc,hkc->bhwk', [zeros(2, 7, 5, 4), Parameter(zeros(7, 3, 4))]),
     2 * 2 * 7 * 5 * 3 * 4),
    (flops('einsum.default', 'ij,jk,kl->il', [zeros(2, 3), zeros(3, 4), zeros(4, 5)]),
     2 * (2 * 3 * 4 + 2 * 4 * 5)),
    (flops('einsum.default', '...i->...', [zeros(2, 7, 5)]), 70),
    (flops('mv.default', zeros(7, 5), zeros(5)), 70),
    (flops('cdist.default', zeros(7, 5), zeros(4, 5)), 3 * 7 * 4 * 5),
    (flops('grid_sampler.default', zeros(1, 3, 8, 8), zeros(1, 5, 6, 2), 0, 0, False),
     2 * 4 * 3 * 30),
    (flops('grid_sampler.default', zeros(1, 3, 8, 8), zeros(1, 5, 6, 2), 1, 0, False),
     2 * 3 * 30),
    (flops('gru.input', zeros(6, 2, 5), zeros(1, 2, 3), [
        zeros(9, 5), zeros(9, 3), zeros(9), zeros(9)], True, 1, 0.0, False, False, False),
     2 * 12 * (45 + 27)),
    (flops('index_select.default', zeros(7, 5), 0, Parameter(torch.tensor([1, 2]))), 0),
    (flops('relu.default', zeros(1, 4, 8, 8)), 256),
    (flops('mean.dim', zeros(1, 4, 8, 8), [2, 3]), 256),
    (flops('upsample_nearest2d.vec', zeros(1, 4, 8, 8), [16, 16], None), 1024),
    (flops('view.default', zeros(1, 4, 8, 8), [1, 256]), 0),
    (flops('cat.default', [zeros(2), zeros(3)], 0), 0),
])
def test_count(count: int, expected: int) -> None:
    assert count == expected


def test_parts_of_a_reduction_count_what_the_whole_counts() -> None:
    net = nn.Sequential(nn.Conv2d(3, 4, 3, padding=1), nn.Flatten(), nn.Linear(4 * 8 * 6, 5))
    graph = capture(net, zeros(1, 3, 8, 6))
    split = split_graph(graph)
    whole = sum(operator_flops(graph, op) for op in graph.operators)
    parts = sum(operator_flops(split.graph, op) for op in split.graph.operators)
    assert whole <= parts <= 1.01 * whole


def test_agrees_with_torch_on_multiply_adds() -> None:
    net = nn.Sequential(
        nn.Conv2d(3, 8, 5, 2, 1, groups=1), nn.ConvTranspose2d(8, 4, 4, 2, 1), nn.Flatten(),
        nn.Linear(4 * 14 * 10, 6))
    x = zeros(1, 3, 16, 12)
    with FlopCounterMode(display=False) as counter:
        net(x)
    graph = capture(net, x)
    assert sum(operator_flops(graph, op) for op in graph.operators) == counter.get_total_flops()
