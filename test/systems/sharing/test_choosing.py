# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""The robot takes the schedule for the predicted rate, and does not swing between two."""
from __future__ import annotations

from dataclasses import replace
import math

import pytest
from sharing import ENDLESS, FixedRate, hand_made_book, sharing_pair, TIMEOUT
from small_models import seeded, UNet
import torch

from intradp_ros.runtime.models.model import share_module
from intradp_ros.systems.sharing.book.book import HYSTERESIS
from intradp_ros.systems.sharing.book.choice import pays
from intradp_ros.systems.sharing.session.pair import in_process_pair
from intradp_ros.systems.sharing.strategies import (
    OFFLOAD,
    SHARED,
)


def test_the_schedule_follows_the_rate_with_hysteresis() -> None:
    source = torch.randn(1, 3, 32, 48)
    model = share_module(seeded(UNet, 32, 48), (source,))
    book = hand_made_book(model)
    halves = ((10.0, 0.0, 30.0), (90.0, 30.0, math.inf))
    book = replace(book, entries=tuple(
        replace(e, mbps=mbps, low=low, high=high) for mbps, low, high in halves
        for e in book.entries))
    with sharing_pair(model, book) as pair:
        predictor = pair.robot.link.predictor
        assert isinstance(predictor, FixedRate)
        used = []
        for mbps in (20, 31, 30 * HYSTERESIS + 1, 29, 30 / HYSTERESIS - 1):
            predictor.rate = mbps * 125e3
            stats = pair.robot.infer((source,), strategy=OFFLOAD).stats
            assert stats.shared
            used.append(book.entries[stats.schedule].mbps)
    assert used == [10.0, 10.0, 90.0, 90.0, 10.0]


class Told(FixedRate):
    """Keeps what was measured last."""

    measured = 0.0

    def update(self, rate: float, now: float) -> None:
        self.measured = rate


def test_a_rate_down_counts_by_the_ratio_that_the_book_assumes() -> None:
    source = torch.randn(1, 3, 96, 128)
    model = share_module(seeded(UNet, 96, 128), (source,))
    predictor = Told(100.0)
    with in_process_pair(model, predictor, mbps=100.0, patience=ENDLESS) as pair:
        for ratio in (1e-4, 1.0, 1e4):
            pair.robot.use_book(replace(hand_made_book(model), down_ratio=ratio))
            assert pair.robot.connection.wait_ready(TIMEOUT)
            for _ in range(3):
                assert pair.robot.infer((source,), strategy=OFFLOAD).stats.shared
            assert pair.robot.predicted_rate == predictor.rate
            # Down is as fast as up, so too slow for what the book assumes, or more than enough.
            assert (predictor.measured < 0.01 * predictor.rate) == (ratio > 1)


@pytest.mark.parametrize('promised, shares', [(0.97, False), (0.9, True)])
def test_sharing_that_promises_little_is_left_alone(promised: float, shares: bool) -> None:
    source = torch.randn(1, 3, 32, 48)
    model = share_module(seeded(UNet, 32, 48), (source,))
    book = hand_made_book(model)
    book = replace(book, entries=tuple(
        replace(e, predicted=promised if e.strategy == SHARED else 1.0) for e in book.entries))
    with sharing_pair(model, book) as pair:
        assert pair.robot.infer((source,)).stats.shared is shares
        pair.robot.use_book(replace(book, objective='energy'))
        assert pair.robot.connection.wait_ready(TIMEOUT)
        assert pair.robot.infer((source,)).stats.shared


@pytest.mark.parametrize('alone, spread, least', [
    (1.0, 0.0, 0.05), (0.1, 0.5, 0.07), (1.0, 0.4, 0.21), (1.0, 3.0, 0.25), (60.0, 0.4, 0.21)])
def test_long_inferences_on_links_that_change_have_to_promise_more(
        alone: float, spread: float, least: float) -> None:
    assert pays((1 - least - 1e-6) * alone, alone, lambda: spread)
    assert not pays((1 - least + 1e-6) * alone, alone, lambda: spread)
