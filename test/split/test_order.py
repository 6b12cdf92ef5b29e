# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""The order in which operators run."""
from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st
from synthetic import random_split_graph
import torch
from torch import nn

from intradp_lab.testbed.recorded import as_captured
from intradp_ros.graph.capture import capture
from intradp_ros.graph.reference_evaluation import run_graph
from intradp_ros.split.checks.verify import verify
from intradp_ros.split.order import in_running_order
from intradp_ros.split.split_graph import split_graph


class TwoScales(nn.Module):
    """A trunk, written first to last, and heads behind it, each enlarged at once."""

    def __init__(self) -> None:
        super().__init__()
        self.trunk = nn.ModuleList([nn.Conv2d(3, 8, 3, padding=1), nn.Conv2d(8, 16, 3, 2, 1)])
        self.scores = nn.ModuleList([nn.Conv2d(8, 1, 1), nn.Conv2d(16, 1, 1)])

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Take ``1x3x16x12``, return ``1x3x32x24``."""
        first = self.trunk[0](x)
        second = self.trunk[1](first)
        return torch.cat([
            *(nn.functional.interpolate(score(value), size=(32, 24))
              for score, value in zip(self.scores, (first, second))),
            second.mean((2, 3), keepdim=True).mean(1, keepdim=True).expand(1, 1, 32, 24)], 1)


X = torch.randn(1, 3, 16, 12)


def test_what_shrinks_runs_early_and_what_grows_late() -> None:
    graph = capture(TwoScales().eval(), (X,))
    names = [op.name for op in in_running_order(graph).operators]
    assert [op.name for op in graph.operators][:3] == ['conv2d', 'conv2d_1', 'conv2d_2']
    place = {name: k for k, name in enumerate(names)}
    assert place['conv2d_2'] < place['conv2d_1'] < place['conv2d_3']
    assert place['conv2d_3'] < min(k for name, k in place.items() if 'upsample' in name)


def test_the_result_is_that_of_the_captured_graph() -> None:
    graph = capture(TwoScales().eval(), (X,))
    split = split_graph(graph)
    assert [op.operator.id for op in split.operators] == list(range(len(split.operators)))
    (wanted,), (found,) = run_graph(graph, [X]), run_graph(split.graph, [X])
    assert torch.allclose(wanted, found, atol=1e-6)
    assert verify(split, [X], parts=2).exact


def test_reductions_are_found_where_they_were_captured() -> None:
    split = split_graph(capture(TwoScales().eval(), (X,)))
    assert len(split.operators) > len(split.captured.operators)
    names = [split.operators[k].operator.name.partition('.')[0] for k in as_captured(split)]
    assert list(dict.fromkeys(names)) == [op.name for op in split.captured.operators]


@given(st.integers(0, 10**6), st.integers(1, 14))
@settings(max_examples=50)
def test_every_operator_runs_once_behind_what_it_reads(seed: int, count: int) -> None:
    graph = random_split_graph(seed, count).graph
    ordered = in_running_order(graph)
    assert sorted(op.name for op in ordered.operators) == sorted(
        op.name for op in graph.operators)
    there = set(graph.inputs)
    for k, op in enumerate(ordered.operators):
        assert op.id == k and there >= set(op.inputs)
        there |= {v for v in op.outputs if v is not None}
    assert in_running_order(ordered).operators == ordered.operators
