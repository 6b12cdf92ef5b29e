# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""The robot takes the schedule for the predicted rate, and does not swing between two."""
from __future__ import annotations

from dataclasses import replace
import math

from sharing import FixedRate, hand_made_book, sharing_pair
from small_models import seeded, UNet
import torch

from intradp_ros.execution.model import share_module
from intradp_ros.planning.baselines import OFFLOAD
from intradp_ros.planning.book import HYSTERESIS


def test_the_schedule_follows_the_rate_with_hysteresis() -> None:
    source = torch.randn(1, 3, 32, 48)
    model = share_module(seeded(UNet, 32, 48), (source,))
    book = hand_made_book(model)
    halves = ((10.0, 0.0, 30.0), (90.0, 30.0, math.inf))
    book = replace(book, entries=tuple(
        replace(e, mbps=mbps, low=low, high=high) for mbps, low, high in halves
        for e in book.entries))
    with sharing_pair(model, book) as pair:
        predictor = pair.robot.predictor
        assert isinstance(predictor, FixedRate)
        used = []
        for mbps in (20, 31, 30 * HYSTERESIS + 1, 29, 30 / HYSTERESIS - 1):
            predictor.rate = mbps * 125e3
            stats = pair.robot.infer((source,), strategy=OFFLOAD).stats
            assert stats.shared
            used.append(book.entries[stats.schedule].mbps)
    assert used == [10.0, 10.0, 90.0, 90.0, 10.0]
