# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""A strategy that takes longer than it promised is left for one that keeps its word."""
from __future__ import annotations

from dataclasses import replace
import math
import time

import pytest
from sharing import hand_made_book, sharing_pair
from small_models import seeded, UNet
import torch

from intradp_ros.runtime.models.model import share_module
from intradp_ros.systems.sharing.book.choice import Forecast, ScheduleChoice
from intradp_ros.systems.sharing.book.critical_paths import LatencyModel, Path
from intradp_ros.systems.sharing.book.hindsight import LatencySample
from intradp_ros.systems.sharing.book.latency_calibration import LatencyCalibration
from intradp_ros.systems.sharing.strategies import (
    CUT,
    LOCAL,
    OFFLOAD,
    SHARED,
)


def test_two_inferences_say_as_much_as_the_prediction() -> None:
    seen = LatencyCalibration()
    for latency, factor in ((2.0, 1.0), (2.0, 1.5), (9.0, 2.0), (2.0, 2.0)):
        seen.note('a', latency, 1.0, 0.0)
        assert seen.factor('a', 0.0) == pytest.approx(factor)
    assert seen.factor('b', 0.0) == 1.0


def test_one_disturbed_inference_of_seven_teaches_nothing() -> None:
    seen = LatencyCalibration()
    for latency in (1.1, 1.1, 1.1, 60.0, 1.1, 1.1, 1.1):
        seen.note('a', latency, 1.0, 0.0)
    assert seen.factor('a', 0.0) == 1.1


def test_what_was_given_up_gets_another_chance() -> None:
    seen = LatencyCalibration(half_life=10.0)
    for _ in range(4):
        seen.note('a', 2.0, 1.0, 0.0)
    assert [seen.factor('a', now) for now in (0.0, 9.0, 11.0)] == [2.0, 2.0, 1.0]


@pytest.mark.parametrize('latency, factor', [(1.0, 1.0), (2.0, 2.0)])
def test_it_keeps_its_chance_if_it_takes_less_then(latency: float, factor: float) -> None:
    seen = LatencyCalibration(half_life=10.0)
    for _ in range(4):
        seen.note('a', 2.0, 1.0, 0.0)
    seen.note('a', latency, 1.0, 11.0)
    assert seen.factor('a', 11.0) == factor


@pytest.mark.parametrize('latency, predicted', [
    (1.0, 0.0), (0.0, 1.0), (math.inf, 1.0), (1.0, math.nan)])
def test_what_has_no_prediction_teaches_nothing(latency: float, predicted: float) -> None:
    seen = LatencyCalibration()
    for _ in range(5):
        seen.note('a', latency, predicted, 0.0)
    assert seen.factor('a', 0.0) == 1.0


@pytest.mark.parametrize('learns', [True, False])
def test_a_robot_leaves_a_strategy_that_breaks_its_word(learns: bool) -> None:
    source = torch.randn(1, 3, 32, 48)
    model = share_module(seeded(UNet, 32, 48), (source,))
    book = hand_made_book(model)
    # Sharing promises a microsecond, staying alone a millisecond, the others an hour.
    promised = {SHARED: 1e-6, LOCAL: 1e-3}
    book = replace(book, entries=tuple(
        replace(e, predicted=promised.get(e.strategy, 3600.0)) for e in book.entries))
    with sharing_pair(model, book) as pair:
        pair.robot.choice.experience = LatencyCalibration() if learns else None
        used = [pair.robot.infer((source,)).stats.shared for _ in range(6)]
    assert used[:3] == [True] * 3
    assert used[-1] is not learns


def test_one_schedule_may_be_mistaken_where_others_of_its_kind_are_not() -> None:
    """Offload and cut in turn, both of whole layers; the cut takes twice what it promised."""
    source = torch.randn(1, 3, 32, 48)
    book = hand_made_book(share_module(seeded(UNet, 32, 48), (source,)))
    known = LatencyModel((Path(0.0, 0.1, 9.0, 0.0),), (0.0, 0.1))
    one = {strategy: replace(next(e for e in book.entries if e.strategy == strategy),
                             anywhere=known) for strategy in (OFFLOAD, CUT)}
    assert not any(entry.partition.by_rows for entry in one.values())
    choice = ScheduleChoice(LatencyCalibration())
    for latency, strategy in ((1.0, OFFLOAD), (1.0, OFFLOAD), (2.0, CUT)) * 4:
        choice.note(one[strategy], LatencySample(time.monotonic(), latency, 1.0, 1.0, 10.0))
        choice.decide(1, book, 10.0, OFFLOAD, lambda: 0.0, Forecast(lambda _: None, lambda s: s))
    assert choice.corrected(one[OFFLOAD], 1.0) == pytest.approx(1.0)
    assert choice.corrected(one[CUT], 1.0) == pytest.approx(2.0)


def test_little_is_kept_of_books_that_are_gone() -> None:
    seen = LatencyCalibration()
    for number in range(1000):
        seen.note('used', 2.0, 1.0, 0.0)
        seen.note(number, 2.0, 1.0, 0.0)
    assert seen.factor('used', 0.0) == 2.0 and seen.factor(999, 0.0) == 1.0
    assert len(seen._seen) <= 256
