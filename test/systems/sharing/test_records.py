# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""Networks whose reductions two sides share: exact, and records cross instead of tensors."""
from __future__ import annotations

from collections.abc import Callable
import random

import pytest
from sharing import ENDLESS, hand_made_book, sharing_pair, SHORT
import torch
from torch import nn

from intradp_ros.runtime.models.model import share_module, SharedModel
from intradp_ros.runtime.transport.memory_channel import MemoryChannel
from intradp_ros.schedule.schedule import Compute, ROBOT, SERVER
from intradp_ros.split.checks.calibrate import calibrate, depends_on_input
from intradp_ros.split.checks.verify import verify
from intradp_ros.split.local_operator import SplitGraph
from intradp_ros.split.regions.region import Region
from intradp_ros.systems.sharing.partition.lowering import lower
from intradp_ros.systems.sharing.partition.partition import Partition, RowStage
from intradp_ros.wire.frames import Chunk, Frame

pytestmark = pytest.mark.usefixtures('one_thread')


class Squeeze(nn.Module):
    """An inverted residual with squeeze-and-excitation, as in MobileNetV3 and EfficientNet."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.grow = nn.Conv2d(channels, 2 * channels, 1)
        self.depthwise = nn.Conv2d(2 * channels, 2 * channels, 3, 1, 1, groups=2 * channels)
        self.excite = nn.Sequential(
            nn.AdaptiveAvgPool2d(1), nn.Conv2d(2 * channels, 4, 1), nn.SiLU(),
            nn.Conv2d(4, 2 * channels, 1), nn.Sigmoid())
        self.shrink = nn.Conv2d(2 * channels, channels, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = torch.nn.functional.hardswish(self.depthwise(self.grow(x)))
        return x + self.shrink(y * self.excite(y))


def squeezing() -> nn.Module:
    """Build a network of three such blocks with a classifier."""
    return nn.Sequential(
        nn.Conv2d(3, 8, 3, 2, 1), Squeeze(8), Squeeze(8), Squeeze(8), nn.AdaptiveAvgPool2d(1),
        nn.Flatten(), nn.Linear(8, 10))


class Volume(nn.Module):
    """A small 3-D U-Net with instance norms."""

    def __init__(self) -> None:
        super().__init__()

        def convolutions(inputs: int, outputs: int) -> nn.Sequential:
            return nn.Sequential(
                nn.Conv3d(inputs, outputs, 3, 1, 1), nn.InstanceNorm3d(outputs, affine=True),
                nn.LeakyReLU(0.1))

        self.fine, self.coarse = convolutions(1, 4), convolutions(4, 8)
        self.joined = convolutions(12, 4)
        self.head = nn.Conv3d(4, 2, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        fine = self.fine(x)
        coarse = self.coarse(nn.functional.max_pool3d(fine, 2))
        wide = nn.functional.interpolate(coarse, scale_factor=2)
        return self.head(self.joined(torch.cat((fine, wide), 1)))


class Groups(nn.Module):
    """Residual blocks with group norms, and a largest element of each channel."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 8, 3, 1, 1)
        self.blocks = nn.ModuleList(
            nn.Sequential(nn.GroupNorm(4, 8), nn.ReLU(), nn.Conv2d(8, 8, 3, 1, 1))
            for _ in range(3))

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        x = self.stem(x)
        for block in self.blocks:
            x = x + block(x)
        return x, nn.functional.adaptive_max_pool2d(x, 1).flatten(1)


def flattening() -> nn.Module:
    """Build a network of the kind of VGG: wide linear layers behind flattened rows."""
    return nn.Sequential(
        nn.Conv2d(3, 8, 3, 1, 1), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(8, 16, 3, 1, 1), nn.ReLU(),
        nn.MaxPool2d(2), nn.Flatten(), nn.Linear(16 * 8 * 6, 32), nn.ReLU(), nn.Linear(32, 10))


class Queries(nn.Module):
    """Learned queries over the pixels, and an attention that is linear in their number."""

    def __init__(self) -> None:
        super().__init__()
        self.embed, self.pair = nn.Conv2d(3, 8, 4, 4), nn.Conv2d(8, 16, 1)
        self.queries = nn.Parameter(torch.randn(1, 2, 5, 4))

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        tokens = self.embed(x)
        keys, values = self.pair(tokens).flatten(2).unflatten(1, (2, 2, 4)).transpose(
            -1, -2).unbind(1)
        asked = nn.functional.scaled_dot_product_attention(
            self.queries.expand(len(x), -1, -1, -1), keys, values)
        context = keys.softmax(-2).transpose(-1, -2) @ values
        return asked, values.softmax(-1) @ context


NETWORKS: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...], int, int]] = {
    # how to build it, input size, how many values are folded, most bytes of all their records
    'squeezing': (squeezing, (1, 3, 36, 40), 4, 3 * 16 * 8 + 64),
    'volume': (Volume, (1, 1, 12, 8, 10), 3, 8 * (3 + 2 * 16)),
    'groups': (Groups, (1, 3, 24, 20), 4, 8 * (3 * 9 + 8)),
    'flattening': (flattening, (1, 3, 32, 24), 1, 32 * 8),
    'queries': (Queries, (1, 3, 64, 48), 3, 8 * (2 * 5 * 6 + 2 * 2 * 4 + 2 * 4 * 4)),
}


@pytest.fixture(scope='module', params=NETWORKS)
def case(request: pytest.FixtureRequest) -> tuple[nn.Module, SharedModel, int, int]:
    """Return a network in double, made ready, its folded values and the bytes of a record each."""
    build, size, folded, nbytes = NETWORKS[request.param]
    torch.manual_seed(0)
    network, example = build(), torch.randn(size)
    calibrate(network, (example,))
    assert depends_on_input(network, (example,)), 'a constant output would pass any test'
    network = network.double().eval()
    return network, share_module(network, (example.double(),), 2), folded, nbytes


def behind_records(split: SplitGraph, share: float, bands: int) -> Partition:
    """Return a partition whose stages end where records are made."""
    stops = sorted({split.graph.producer[v] + 1 for v in split.folded} | {len(split.operators)})
    return Partition(tuple(RowStage(stop, share, bands, bands) for stop in stops))


def check(network: nn.Module, x: torch.Tensor, outputs: object) -> None:
    with torch.no_grad():
        wanted = network(x)
    given, wanted = ([t] if isinstance(t, torch.Tensor) else t for t in (outputs, wanted))
    for a, b in zip(given, wanted):
        assert (a - b).abs().max() <= 1e-9 * max(1.0, float(b.max() - b.min()))


def test_reductions_are_local_and_exact_in_parts(
        case: tuple[nn.Module, SharedModel, int, int]) -> None:
    network, model, folded, nbytes = case
    split = model.split
    assert len(split.folded) == folded
    assert sum(split.nbytes(v, 1) for v in split.folded) == nbytes
    shape = split.graph.values[0].shape
    for parts in (2, 3, 5):
        report = verify(split, [torch.randn(shape, dtype=torch.float64)], parts)
        assert report.exact, report.worst
        assert report.split_share > 0.97


@pytest.mark.parametrize(('share', 'bands'), [(0.5, 1), (0.3, 3)])
def test_records_cross_instead_of_tensors(
        case: tuple[nn.Module, SharedModel, int, int], share: float, bands: int) -> None:
    network, model, _, nbytes = case
    split = model.split
    partition = behind_records(split, share, bands)
    schedule = lower(split, partition)
    records = [t for t in schedule.transfers if t.value in split.folded]
    assert {t.value for t in records} == split.folded
    crossing = sum(split.nbytes(t.value, t.region.rows) for t in records)
    assert crossing <= 2 * bands * nbytes
    gathered = {v for value in split.folded
                for v in split.operators[split.graph.producer[value]].operator.inputs}
    gathered -= set(split.graph.output_values)
    sent = [t for t in schedule.transfers if t.value in gathered]
    assert all(t.region.rows < split.rows[t.value] / 2 for t in sent), 'only halos of the tensors'
    x = torch.randn(split.graph.values[0].shape, dtype=torch.float64)
    with sharing_pair(model, hand_made_book(model, partition), patience=ENDLESS) as pair:
        outcome = pair.robot.infer((x,))
        assert outcome.stats.shared and not outcome.stats.recovered
        check(network, x, outcome.outputs)
        assert outcome.stats.bytes_up + outcome.stats.bytes_down == sum(
            split.nbytes(t.value, t.region.rows) for t in schedule.transfers)


def test_any_partition_is_exact(case: tuple[nn.Module, SharedModel, int, int]) -> None:
    network, model, _, _ = case
    source, count = random.Random(1), len(model.split.operators)
    for _ in range(4):
        stops = {*source.sample(range(1, count), source.randint(1, 4)), count}
        partition = Partition(tuple(
            RowStage(stop, source.choice([0.0, 1.0, source.random(), source.random()]),
                     source.randint(1, 3), source.randint(1, 3)) for stop in sorted(stops)))
        x = torch.randn(model.split.graph.values[0].shape, dtype=torch.float64)
        with sharing_pair(model, hand_made_book(model, partition), patience=ENDLESS) as pair:
            outcome = pair.robot.infer((x,))
            assert outcome.stats.shared
            check(network, x, outcome.outputs)


def test_the_robot_finishes_alone_from_the_records_it_has(
        case: tuple[nn.Module, SharedModel, int, int]) -> None:
    """The link is cut when half of the server's transfers are there."""
    network, model, _, _ = case
    partition = behind_records(model.split, 0.4, 2)
    down = lower(model.split, partition).between(SERVER, ROBOT)
    x = torch.randn(model.split.graph.values[0].shape, dtype=torch.float64)
    with sharing_pair(model, hand_made_book(model, partition), patience=SHORT) as pair:
        channel = pair.robot_channel
        assert isinstance(channel, MemoryChannel)
        chunks = 0

        def counting(frame: Frame) -> None:
            nonlocal chunks
            pair.robot.handle(frame)
            chunks += isinstance(frame, Chunk)
            if chunks == len(down) // 2:
                channel.cut()

        channel.listen(counting)
        if len(down) == 1:
            channel.cut()
        outcome = pair.robot.infer((x,))
        check(network, x, outcome.outputs)
        assert outcome.stats.recovered


def test_only_half_of_the_weights_behind_flattened_rows_are_read() -> None:
    """Each side multiplies its rows with the weights of these rows."""
    torch.manual_seed(0)
    model = share_module(flattening().double(), (torch.randn(1, 3, 32, 24).double(),), 2)
    schedule = lower(model.split, behind_records(model.split, 0.5, 1))
    (value,) = model.split.folded
    operator = model.split.graph.producer[value]
    for side, region in ((ROBOT, Region(0, 4)), (SERVER, Region(4, 8))):
        assert Compute(operator, region) in schedule.programs[side]
