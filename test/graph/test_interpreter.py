# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""The reference interpreter: checks inputs, frees values after their last use."""
from __future__ import annotations

import weakref

from graph.nets import captured, prepared, UNet
import pytest
import torch
from torch import nn

from intradp_ros.graph.compare import difference, explained_by_rounding
from intradp_ros.graph.graph_errors import GraphInputError
from intradp_ros.graph.operator_graph import resolve_target
from intradp_ros.graph.reference_evaluation import run_graph, values_freed_after


@pytest.mark.parametrize(('x', 'message'), [
    (torch.zeros(1, 3, 8, 9), r"input 'x' must be float32\[1, 3, 8, 8\].*got float32\[1, 3, 8, 9"),
    (torch.zeros(1, 3, 8, 8, dtype=torch.uint8), r'got uint8\[1, 3, 8, 8\]'),
])
def test_other_inputs_than_captured_are_refused(x: torch.Tensor, message: str) -> None:
    graph = captured(prepared(UNet()), torch.zeros(1, 3, 8, 8))
    with pytest.raises(GraphInputError, match=message):
        run_graph(graph, [x])
    with pytest.raises(GraphInputError, match='takes 1 tensors, got 2'):
        run_graph(graph, [x, x])


def test_values_are_freed_once_each_after_their_last_reader() -> None:
    graph = captured(prepared(UNet()), torch.zeros(1, 3, 8, 8))
    freed = values_freed_after(graph)
    for operator, values in zip(graph.operators, freed):
        for value in values:
            last = max(graph.consumers[value], default=graph.producer.get(value))
            assert last == operator.id
    everything = sorted(v for values in freed for v in values)
    assert everything == sorted({v.id for v in graph.values} - set(graph.output_values))


def test_values_do_not_live_longer_than_needed(monkeypatch: pytest.MonkeyPatch) -> None:
    alive: list[int] = []
    made: list[weakref.ref[torch.Tensor]] = []
    relu = torch.ops.aten.relu.default

    def watched(x: torch.Tensor) -> torch.Tensor:
        alive.append(sum(r() is not None for r in made))
        made.append(weakref.ref(result := relu(x)))
        return result

    graph = captured(nn.Sequential(*[nn.ReLU() for _ in range(6)]), torch.randn(3))
    monkeypatch.setattr(
        'intradp_ros.graph.operator_graph.resolve_target',
        lambda target: watched if target == 'aten.relu.default' else resolve_target(target))
    run_graph(graph, [torch.randn(3)])
    assert len(made) == 6
    assert max(alive) == 1


def test_differences_are_relative_and_strict_about_what_is_no_rounding() -> None:
    a = torch.tensor([1.0, -4.0])
    assert difference(a, a) == 0
    assert difference(a, torch.tensor([1.0, -3.0])) == 0.25
    assert difference(torch.zeros(2), torch.zeros(2)) == 0
    for other in (a.double(), a[:1], a.long(), torch.tensor([1.0, torch.nan]), 1.0):
        assert difference(a, other) == torch.inf
    assert difference(torch.zeros(2), a) == torch.inf
    assert difference(torch.tensor([1, 2]), torch.tensor([1, 3])) == torch.inf
    gaps = torch.tensor([torch.nan, torch.inf, 2.0])
    assert difference(gaps, gaps.clone()) == 0
    assert difference(gaps, torch.tensor([torch.nan, -torch.inf, 2.0])) == torch.inf
    assert explained_by_rounding([a, 3, None], [a + 1e-6, 3, None])
    assert not explained_by_rounding([a, 3], [a, 4])
    assert not explained_by_rounding([a], [a, a])
    assert not explained_by_rounding([a], [a + 0.1])
