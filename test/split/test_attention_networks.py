# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""Networks that attend, look up, sample and recur, in random parts."""
from __future__ import annotations

import attention_networks
import pytest
import torch
from torch import nn

from intradp_ros.graph.capture import capture
from intradp_ros.split.checks.calibrate import calibrate, depends_on_input
from intradp_ros.split.checks.verify import verify
from intradp_ros.split.local_operator import SplitGraph
from intradp_ros.split.split_graph import split_graph

NETWORKS = {
    # input size, least share of operations that must run in parts along height and width
    'QueryDetector': ((1, 3, 64, 96), 0.75, 0.0),
    'Segmenter': ((1, 3, 64, 96), 0.99, 0.0),
    'LineReader': ((1, 3, 32, 64), 0.9, 0.85),
    'Warp': ((1, 3, 32, 48), 0.99, 0.99),
    'PlacedAttention': ((1, 3, 40, 32), 0.99, 0.99),
}


@pytest.fixture(scope='module', params=NETWORKS)
def network(request: pytest.FixtureRequest) -> tuple[nn.Module, torch.Tensor, dict[int, float]]:
    """Return a calibrated network in double precision, an input, its shares by axis."""
    size, *shares = NETWORKS[request.param]
    torch.manual_seed(0)
    model: nn.Module = getattr(attention_networks, request.param)()
    x = torch.randn(size)
    calibrate(model, (x,))
    assert depends_on_input(model, (x,))
    return model.double(), x.double(), dict(zip((2, 3), shares))


@pytest.mark.parametrize('axis', [2, 3])
def test_network_in_parts_is_exact(
        network: tuple[nn.Module, torch.Tensor, dict[int, float]], axis: int) -> None:
    model, x, shares = network
    split = split_graph(capture(model, x), axis)
    for parts in (2, 3):
        report = verify(split, [x], parts)
        assert report.exact, report.worst
    assert report.split_share >= shares[axis], describe(split)


def test_network_in_parts_is_exact_in_single_precision(
        network: tuple[nn.Module, torch.Tensor, dict[int, float]]) -> None:
    model, x, _ = network
    single = x.float()
    report = verify(split_graph(capture(model.float(), single)), [single])
    model.double()
    assert report.worst is not None
    assert report.worst.relative <= 1e-5


def describe(split: SplitGraph) -> str:
    return '\n'.join(
        f'{local.kind.value:12} {local.rows:4} {local.operator.target}'
        for local in split.operators)
