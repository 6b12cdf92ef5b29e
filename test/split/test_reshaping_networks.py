# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""Whole networks that reshape their rows: the right axis, nearly all work local, and exact."""
from __future__ import annotations

from collections.abc import Callable

import pytest
import reshaping_networks as nets
import torch
from torch import nn

from intradp_ros.graph.capture import capture
from intradp_ros.split.checks.calibrate import calibrate, depends_on_input
from intradp_ros.split.checks.verify import verify
from intradp_ros.split.split_graph import axis_candidates

NETWORKS: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...], int, float]] = {
    # how to build it, its input, the axis to choose, the least share of work in parts
    'shifted windows': (nets.Swin, (1, 3, 72, 104), 2, 0.99),
    'patches as tokens': (lambda: nets.VisionTransformer(24), (1, 3, 32, 48), 2, 0.99),
    'space to depth and shuffles': (nets.Shuffled, (1, 3, 32, 48), 3, 0.99),
    'pixels of all patches': (nets.Unfolded, (1, 3, 32, 64), 2, 0.99),
    'coarser keys': (nets.Reduced, (1, 3, 64, 96), 2, 0.99),
    'volume': (nets.Volume, (1, 1, 8, 16, 12), 3, 0.99),
    'occupancy': (nets.Volume, (1, 1, 16, 4, 16), 2, 0.99),
    'tokens of several scales': (nets.Levels, (1, 3, 40, 56), 2, 0.99),
}


@pytest.mark.parametrize('name', NETWORKS)
def test_network_in_parts_is_exact(name: str) -> None:
    build, size, axis, share = NETWORKS[name]
    torch.manual_seed(0)
    model, example = build(), (torch.randn(size),)
    calibrate(model, example)
    assert depends_on_input(model, example), 'a constant output would pass any test'
    graph = capture(model.double(), example[0].double())
    best, *others = axis_candidates(graph)
    assert best.axis == axis
    x = torch.randn(size, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    report = verify(best.split, [x], parts=3)
    assert report.exact, report.worst
    assert report.split_share >= share
    report = verify(others[0].split, [x], parts=2)
    assert report.exact, report.worst
