# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""The nodes' default model: it finds edges, in every direction, and needs nothing but torch."""
from __future__ import annotations

import pytest
import torch

from intradp_ros.nodes.common.device_parameter import DEFAULT_MODEL
from intradp_ros.perception.oriented_energy import filters, oriented_energy
from intradp_ros.runtime.models.catalogue import ModelSpec

SIZE = 64


def half_plane(degrees: float) -> torch.Tensor:
    """Return a picture that is bright on one side of a line through its middle."""
    line = torch.arange(SIZE) - SIZE / 2 + 0.5
    y, x = torch.meshgrid(line, line, indexing='ij')
    angle = torch.deg2rad(torch.tensor(degrees))
    bright = x * torch.cos(angle) + y * torch.sin(angle) > 0
    return (40 + 160 * bright).to(torch.uint8).expand(1, 3, SIZE, SIZE)


@pytest.mark.parametrize('degrees', [0.0, 30.0, 45.0, 90.0, 160.0])
def test_edges_of_every_direction_are_found(degrees: float) -> None:
    with torch.no_grad():
        edges = oriented_energy()(half_plane(degrees))
    assert edges.shape == (1, 1, SIZE, SIZE) and 0.0 <= edges.min() <= edges.max() < 1.0
    middle = edges[0, 0, SIZE // 2 - 2:SIZE // 2 + 2, SIZE // 2 - 2:SIZE // 2 + 2]
    assert middle.min() > 0.5
    assert edges[0, 0, 0, 0] < 0.05  # far from the line, in an even part


def test_an_even_picture_has_no_edges() -> None:
    with torch.no_grad():
        assert oriented_energy()(torch.full((1, 3, 32, 32), 200, dtype=torch.uint8)).max() < 1e-6
    assert filters().sum(dim=(1, 2, 3)).abs().max() < 1e-6


def test_nodes_start_with_it() -> None:
    """It is captured as the nodes capture it, and all of its work can be shared."""
    model = ModelSpec.parse(DEFAULT_MODEL).load()
    assert model.split.graph.values[model.split.graph.inputs[0]].dtype is torch.uint8
