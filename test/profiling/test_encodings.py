# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from intradp_ros.graph.capture import capture
from intradp_ros.profiling.cache import cached_profile, example_key
from intradp_ros.profiling.encoding_measurement import measure_encodings
from intradp_ros.profiling.measure import measure_profile, value_encodings
from intradp_ros.split.regions.region import Region
from intradp_ros.split.split_graph import split_graph
from intradp_ros.wire.cutting import cut_into_chunks

GENERATOR = torch.Generator().manual_seed(0)
NOISE = torch.randn(1, 8, 60, 70, generator=GENERATOR)
PIXELS = (128 + 60 * torch.sin(torch.arange(70) / 9) + NOISE).to(torch.uint8)


def test_ratios_follow_the_contents() -> None:
    """Zeros make floats smaller, smoothness differences; noise is left by everything."""
    dense, sparse = measure_encodings(NOISE), measure_encodings(NOISE.relu())
    assert sparse['floats'].ratio < 0.55 < dense['floats'].ratio < 0.95
    assert measure_encodings(PIXELS)['delta'].ratio < 0.6
    raw = torch.randint(256, (40_000,), dtype=torch.uint8, generator=GENERATOR)
    assert min(t.ratio for t in measure_encodings(raw).values()) > 0.97
    assert all(t.encode > 0 and 0 < t.ratio <= 1 for t in sparse.values())


@pytest.mark.parametrize('dtype', [torch.bool, torch.uint8, torch.float32])
def test_bits_are_for_what_has_two_values(dtype: torch.dtype) -> None:
    grid = (NOISE > 1).to(dtype)
    assert measure_encodings(grid)['bits'].ratio < 0.13
    assert 'bits' not in measure_encodings(NOISE.to(torch.int16))


def test_a_value_that_is_constant_now_is_not_taken_for_bits() -> None:
    """A ReLU that is dead on the example may not be so on the next frame."""
    assert 'bits' not in measure_encodings(torch.zeros(1000))
    assert 'bits' in measure_encodings(torch.zeros(1000, dtype=torch.bool))


def test_values_without_elements_have_none() -> None:
    assert measure_encodings(torch.empty(0)) == {}


@pytest.mark.parametrize('dim', [2, 3])
@pytest.mark.parametrize('alive', [range(55, 75), range(0, 128, 10)])
def test_ratios_are_those_of_rows_that_cross(dim: int, alive: range) -> None:
    """Rows have all channels; most of these hold nothing, and a few whole ones say nothing."""
    value = torch.zeros(1, 128, 40, 80)
    value[:, alive] = torch.randn(1, len(alive), 40, 80, generator=GENERATOR).relu()
    ratio = measure_encodings(value, dim)['floats'].ratio
    size = value.shape[dim] // 5
    sent = plain = 0
    for start in range(0, value.shape[dim], size):
        rows = value.narrow(dim, start, size)
        sent += sum(len(chunk.data) for chunk in cut_into_chunks(
            rows, session=1, epoch=1, inference=1, schedule=1, transfer=1, value=1,
            region=Region(start, start + size), chunk_bytes=60_000, encoding='floats'))
        plain += 4 * rows.numel()
    assert ratio == pytest.approx(sent / plain, rel=0.3)


class Network(torch.nn.Module):
    """Pixels, a convolution, a ReLU, a mask."""

    def __init__(self) -> None:
        super().__init__()
        self.convolution = torch.nn.Conv2d(8, 6, 3, padding=1)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        y = torch.relu(self.convolution(x.float()))
        return y, y > 1


def test_all_values_of_a_graph_are_measured(tmp_path: Path) -> None:
    """Inputs, outputs and what is between; kept with the profile, for each example."""
    torch.manual_seed(0)
    graph = split_graph(capture(Network().eval(), (PIXELS,)))
    with torch.inference_mode():
        found = value_encodings(graph, (PIXELS,))
    assert len(found) == len(graph.rows)
    (pixels,), (activations, mask) = graph.graph.inputs, graph.graph.output_values
    assert 'delta' in found[pixels] and 'floats' in found[activations] and 'bits' in found[mask]
    profiles = []
    for inputs in ((PIXELS,), (PIXELS,), (PIXELS + 1,)):
        def measure(inputs: tuple[torch.Tensor, ...] = inputs) -> object:
            profiles.append(measure_profile(graph, inputs, budget=0.0))
            return profiles[-1]
        digest = measure_profile(graph, (PIXELS,), budget=0.0).digest
        again = cached_profile(digest, graph.axis, measure, tmp_path, example_key(inputs))
        assert again == profiles[-1] and len(again.encodings) == len(graph.rows)
    assert len(profiles) == 2
