# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""Pre-processing and post-processing in the captured graph: the link carries what was sensed."""
from __future__ import annotations

from collections.abc import Callable
from math import prod

import pytest
from sharing import assert_equal, sharing_pair
import torch
from torch import nn
from torch.nn import functional as F

from intradp_ros.runtime.models.model import share_module, SharedModel
from intradp_ros.schedule.schedule import ROBOT, SERVER
from intradp_ros.split.checks.verify import run_in_parts, verify
from intradp_ros.systems.sharing.partition.lowering import lower
from intradp_ros.systems.sharing.partition.partition import offload
from intradp_ros.systems.sharing.strategies import (
    OFFLOAD,
    SHARED,
)


class Segmenter(nn.Module):
    """Camera image, uint8 1xHxWx3, to the class of each pixel, uint8 1xHxW."""

    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(
            nn.Conv2d(3, 8, 3, 2, 1), nn.BatchNorm2d(8), nn.ReLU(), nn.Conv2d(8, 5, 3, 1, 1))
        self.register_buffer('mean', torch.tensor([123.7, 116.3, 103.5]).view(1, 3, 1, 1))

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        pixels = (image.permute(0, 3, 1, 2).float() - self.mean) / 58.0
        small = F.interpolate(pixels, scale_factor=0.75, mode='bilinear', antialias=False)
        scores = F.interpolate(self.net(small), image.shape[1:3], mode='bilinear')
        return scores.argmax(1).to(torch.uint8)


class Classifier(nn.Module):
    """Camera image, uint8 1xHxWx3, to the five best of 20 classes and their shares."""

    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(
            nn.Conv2d(3, 16, 3, 2, 1), nn.ReLU(), nn.Conv2d(16, 20, 3, 2, 1),
            nn.AdaptiveAvgPool2d(1), nn.Flatten())

    def forward(self, image: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        pixels = image.movedim(-1, 1).float() / 255 - 0.5
        best = self.net(pixels).softmax(1).topk(5)
        return best.indices, best.values


class FreeSpace(nn.Module):
    """Depth in millimetres, uint16 1xHxW, to obstacles, bool 1xHxW."""

    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.Conv2d(1, 8, 5, 1, 2), nn.ReLU(), nn.Conv2d(8, 1, 3, 1, 1))

    def forward(self, depth: torch.Tensor) -> torch.Tensor:
        metres = depth.to(torch.float32) / 1000
        near = torch.where(metres > 0, metres.clamp(max=10.0), 10.0)
        return self.net(near[:, None])[:, 0] > 0


class Occupancy(nn.Module):
    """Occupancy grid, 8 cells to a byte, uint8 1xDxHxW/8, to a score of each cell."""

    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.Conv3d(1, 4, 3, 1, 1), nn.ReLU(), nn.Conv3d(4, 1, 3, 1, 1))
        self.register_buffer('bits', torch.arange(8, dtype=torch.uint8))

    def forward(self, packed: torch.Tensor) -> torch.Tensor:
        cells = (packed.unsqueeze(-1) >> self.bits) & 1
        return self.net(cells.flatten(3)[:, None].float())


def image(seed: int) -> torch.Tensor:
    source = torch.Generator().manual_seed(seed)
    return torch.randint(0, 256, (1, 48, 64, 3), dtype=torch.uint8, generator=source)


def depth(seed: int) -> torch.Tensor:
    source = torch.Generator().manual_seed(seed)
    return torch.randint(0, 12000, (1, 40, 56), generator=source).to(torch.uint16)


def grid(seed: int) -> torch.Tensor:
    source = torch.Generator().manual_seed(seed)
    return torch.randint(0, 256, (1, 12, 16, 3), dtype=torch.uint8, generator=source)


CASES: dict[str, tuple[type[nn.Module], Callable[[int], torch.Tensor], float]] = {
    'segmenter': (Segmenter, image, 1.0),
    'classifier': (Classifier, image, 0.95),
    'free space': (FreeSpace, depth, 1.0),
    'occupancy': (Occupancy, grid, 1.0),
}


@pytest.fixture(scope='module', params=CASES)
def prepared(request: pytest.FixtureRequest) -> tuple[nn.Module, SharedModel, torch.Tensor]:
    """Return a model, captured on one input, and another input."""
    kind, sensed, _ = CASES[request.param]
    torch.manual_seed(0)
    model = kind().eval()
    return model, share_module(model, (sensed(0),)), sensed(1)


@pytest.mark.parametrize('kind', CASES)
def test_whole_graph_is_split(kind: str) -> None:
    build, sensed, share = CASES[kind]
    torch.manual_seed(0)
    shared = share_module(build(), (sensed(0),))
    report = verify(shared.split, [sensed(1)])
    assert report.exact and report.split_share >= share
    assert shared.split.graph.method == 'export'


def test_parts_give_the_models_own_result(
        prepared: tuple[nn.Module, SharedModel, torch.Tensor]) -> None:
    model, shared, sensed = prepared
    with torch.inference_mode():
        wanted = model(sensed)
    assert_alike(tuple(run_in_parts(shared.split, [sensed])), leaves(wanted))


def test_sensor_bytes_cross_the_link(
        prepared: tuple[nn.Module, SharedModel, torch.Tensor]) -> None:
    model, shared, sensed = prepared
    graph = shared.split.graph
    schedule = lower(shared.split, offload(len(graph.operators)))
    sent = {graph.values[t.value].dtype for t in schedule.between(ROBOT, SERVER)}
    assert sent == {sensed.dtype}
    with torch.inference_mode():
        wanted = model(sensed)
    with sharing_pair(shared) as pair:
        whole = pair.robot.infer((sensed,), strategy=OFFLOAD)
        parts = pair.robot.infer((sensed,), strategy=SHARED)
    headers = 1000
    assert whole.stats.bytes_up <= sensed.nbytes + headers
    assert whole.stats.bytes_down <= sum(map(byte_count, leaves(wanted))) + headers
    assert whole.stats.shared and parts.stats.shared
    assert_alike(leaves(whole.outputs), leaves(wanted))
    assert_alike(leaves(parts.outputs), leaves(wanted))


def leaves(outputs: torch.Tensor | tuple[torch.Tensor, ...]) -> tuple[torch.Tensor, ...]:
    return outputs if isinstance(outputs, tuple) else (outputs,)


def assert_alike(got: tuple[torch.Tensor, ...], wanted: tuple[torch.Tensor, ...]) -> None:
    """Compare results: classes and flags must be the same, shares nearly."""
    for ours, expected in zip(got, wanted):
        if expected.is_floating_point():
            assert_equal(ours, expected)
        else:
            assert torch.equal(ours, expected)


def byte_count(tensor: torch.Tensor) -> int:
    return prod(tensor.shape) * tensor.dtype.itemsize
