# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""Shared inferences whose values cross the link encoded: the same bits, fewer of them."""
from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest
from sharing import assert_equal, hand_made_book, sharing_pair, SHORT
from small_models import seeded, UNet
import torch
from torch import nn
from torch.utils import _pytree as pytree

from intradp_ros.runtime.models.model import share_module, SharedModel
from intradp_ros.systems.sharing.book.book import ScheduleBook
from intradp_ros.systems.sharing.session.pair import Pair
from intradp_ros.systems.sharing.strategies import (
    OFFLOAD,
    SHARED,
)
from intradp_ros.wire.codecs.names import LOSSLESS, NONE
from intradp_ros.wire.cutting import CODEC_NONE
from intradp_ros.wire.frames import Chunk, Frame

pytestmark = pytest.mark.usefixtures('one_thread')

HEIGHT, WIDTH = 48, 64


class Sensors(nn.Module):
    """Takes what sensors give: pixels, occupied cells, millimetres, and signed labels."""

    def __init__(self) -> None:
        super().__init__()
        self.mix = nn.Conv2d(6, 8, 3, padding=1)
        self.head = nn.Conv2d(8, 5, 3, padding=1)

    def forward(self, image: torch.Tensor, cells: torch.Tensor, depth: torch.Tensor,
                labels: torch.Tensor) -> tuple[torch.Tensor, ...]:
        parts = (image.float() / 255, cells.float(), depth.float() / 1000, labels.float())
        scores = self.head(torch.relu(self.mix(torch.cat(parts, 1))))
        best = scores.argmax(1)
        return best, best > 2, scores.topk(2, 1).indices.to(torch.int16)


def sensed(seed: int) -> tuple[torch.Tensor, ...]:
    """Return inputs of every dtype that sensors have."""
    generator = torch.Generator().manual_seed(seed)

    def random(high: int, channels: int, dtype: torch.dtype) -> torch.Tensor:
        return torch.randint(high, (1, channels, HEIGHT, WIDTH), generator=generator).to(dtype)

    return (random(256, 3, torch.uint8), random(2, 1, torch.bool), random(60000, 1, torch.uint16),
            random(20, 1, torch.int16) - 10)


def picture(seed: int) -> tuple[torch.Tensor, ...]:
    return (torch.randn(1, 3, HEIGHT, WIDTH, generator=torch.Generator().manual_seed(seed)),)


@pytest.fixture(scope='module')
def unet() -> SharedModel:
    return share_module(seeded(UNet, HEIGHT, WIDTH), picture(0))


@pytest.fixture(scope='module')
def sensors() -> SharedModel:
    torch.manual_seed(0)
    return share_module(Sensors().eval(), sensed(0))


def assert_same(got: object, wanted: object) -> None:
    ours, theirs = pytree.tree_leaves(got), pytree.tree_leaves(wanted)
    assert [t.dtype for t in ours] == [t.dtype for t in theirs]
    assert all(torch.equal(a, b) for a, b in zip(ours, theirs))


def encoded_book(model: SharedModel, encoding: str) -> ScheduleBook:
    """Return a book in which all values cross in one encoding."""
    book = hand_made_book(model)
    encodings = tuple((value, encoding) for value in range(len(model.split.rows)))
    return replace(book, entries=tuple(
        replace(e, partition=replace(e.partition, encodings=encodings)) for e in book.entries))


def results(pair: Pair, inputs: Sequence[torch.Tensor], strategy: str) -> tuple[object, int]:
    outcome = pair.robot.infer(inputs, strategy=strategy)
    assert outcome.stats.shared, outcome.stats.reason
    return outcome.outputs, outcome.stats.bytes_up + outcome.stats.bytes_down


@pytest.mark.parametrize('encoding', LOSSLESS[1:])
@pytest.mark.parametrize('network', ['unet', 'sensors'])
def test_results_are_the_same_bits(
        network: str, encoding: str, request: pytest.FixtureRequest) -> None:
    """Every dtype, whether the encoding takes it or not; both sides count what they sent."""
    model: SharedModel = request.getfixturevalue(network)
    make = sensed if network == 'sensors' else picture
    with sharing_pair(model) as plain, sharing_pair(model, encoded_book(model, encoding)) as pair:
        for seed, strategy in ((1, SHARED), (2, SHARED), (3, OFFLOAD)):
            wanted, plain_bytes = results(plain, make(seed), strategy)
            got, nbytes = results(pair, make(seed), strategy)
            assert_same(got, wanted)
            assert nbytes <= plain_bytes
        for traffic in (pair.robot.sent, pair.server.sent):
            counts = traffic.by_encoding()
            assert set(counts) <= {NONE, encoding}
            crossed, before = counts.get(encoding, (0, 0))
            assert crossed < before or not before
        assert pair.robot.received.by_encoding() == pair.server.sent.by_encoding()
        used = {*pair.robot.sent.by_encoding(), *pair.server.sent.by_encoding()}
        assert encoding in used or (network, encoding) in {
            ('unet', 'bits'), ('unet', 'delta'), ('unet', 'lz4')}
        assert not pair.robot.rejections.total and not pair.server.rejections.total


def test_a_side_without_the_library_gets_plain_values(unet: SharedModel) -> None:
    """The book may name what one of the sides has not."""
    with sharing_pair(unet, encoded_book(unet, 'floats')) as pair:
        pair.robot.connection.encodings = frozenset({'lz4'})
        session, = pair.server.sessions.values()
        session.begin_anew(0, frozenset())
        with sharing_pair(unet) as plain:
            assert_same(results(pair, picture(1), SHARED)[0],
                        results(plain, picture(1), SHARED)[0])
        assert set(pair.robot.sent.by_encoding()) == set(pair.server.sent.by_encoding()) == {NONE}


def test_a_chunk_that_cannot_be_decoded_costs_one_late_inference(unet: SharedModel) -> None:
    """It is rejected and counted; the robot finishes alone, exactly; the next one is shared."""
    patience = replace(SHORT, late_slack=1.0)
    with sharing_pair(unet, encoded_book(unet, 'floats'), patience=patience) as pair:
        wanted = pair.robot.infer(picture(1), strategy='local').outputs
        mangled = 0

        def mangle(frame: Frame) -> None:
            nonlocal mangled
            if isinstance(frame, Chunk) and frame.codec != CODEC_NONE and not mangled:
                mangled += 1
                frame = replace(frame, data=bytes(len(frame.data) - 1))
            pair.server.handle(frame)

        pair.server_channel.listen(mangle)
        outcome = pair.robot.infer(picture(1), strategy=SHARED)
        assert outcome.stats.recovered
        assert_equal(outcome.outputs, wanted)
        assert pair.server.rejections.by_cause()['codec'] == 1
        assert pair.robot.connection.wait_ready(30)
        assert pair.robot.infer(picture(1), strategy=SHARED).stats.shared


def test_what_fails_while_it_is_encoded_ends_the_waiting(
        unet: SharedModel, monkeypatch: pytest.MonkeyPatch) -> None:
    """An error on the executor's thread is the inference's, and names the reason."""
    with sharing_pair(unet, encoded_book(unet, 'floats')) as pair:
        wanted = pair.robot.infer(picture(1), strategy='local').outputs
        monkeypatch.setattr(pair.robot.channel, 'chunk_bytes', 0)
        outcome = pair.robot.infer(picture(1), strategy=SHARED)
        assert outcome.stats.recovered and 'chunk_bytes must be' in outcome.stats.reason
        assert_equal(outcome.outputs, wanted)
