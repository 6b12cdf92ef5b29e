# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

from dataclasses import dataclass, field

from hypothesis import given, settings
from hypothesis import strategies as st
import numpy as np
import pytest
from sharing import ENDLESS, FixedRate, hand_made_book, infer_until_shared, TIMEOUT
from small_models import seeded, UNet
import torch

from intradp_lab.emulation.emulated_device import AHEAD, DeviceClock, emulated
from intradp_ros.runtime.models.model import share_module, SharedModel
from intradp_ros.runtime.transport.memory_channel import memory_pair
from intradp_ros.schedule.schedule import ROBOT, SERVER
from intradp_ros.systems.sharing.partition.lowering import lower
from intradp_ros.systems.sharing.partition.partition import Partition, RowStage
from intradp_ros.systems.sharing.session.robot import RobotClient
from intradp_ros.systems.sharing.session.server import OffloadServer

HEIGHT, WIDTH = 48, 64


@dataclass
class Time:
    """A clock whose sleeps end late by a given time."""

    late: float
    now: float = 100.0
    naps: list[float] = field(default_factory=list)

    def sleep(self, seconds: float) -> None:
        self.naps.append(seconds)
        self.now += seconds + self.late


@settings(max_examples=100)
@given(st.lists(st.floats(1e-6, 5e-3), min_size=1, max_size=200), st.floats(0.0, 3e-4),
       st.floats(0.0, 3e-5))
def test_operators_end_when_they_should_however_short(
        operators: list[float], late: float, overhead: float) -> None:
    time = Time(late)
    clock = DeviceClock(time.sleep, lambda: time.now)
    start, spent = time.now, 0.0
    for seconds in operators:
        clock.spend(seconds)
        spent += seconds
        bookkeeping = min(overhead, seconds / 2)
        time.now += bookkeeping
        assert -AHEAD - 1e-9 <= time.now - start - spent <= late + overhead + 1e-9


def test_a_device_that_waited_goes_on_from_now() -> None:
    time = Time(0.0)
    clock = DeviceClock(time.sleep, lambda: time.now)
    clock.idle_until(time.now)
    clock.spend(0.01)
    time.now += 5.0
    clock.idle_until(time.now - 0.004)
    clock.spend(0.01)
    assert time.naps == pytest.approx([0.01, 0.006])


def test_what_other_threads_keep_from_a_device_is_made_up_for() -> None:
    time = Time(0.0)
    clock = DeviceClock(time.sleep, lambda: time.now)
    for _ in range(3):
        clock.spend(0.01)
        time.now += 0.008
        clock.idle_until(time.now - 0.009)
    assert time.now - 100.0 == pytest.approx(0.038)
    assert time.naps == pytest.approx([0.01, 0.002, 0.002])


@pytest.fixture(scope='module')
def model() -> SharedModel:
    return share_module(seeded(UNet, HEIGHT, WIDTH), (torch.zeros(1, 3, HEIGHT, WIDTH),))


def tables(model: SharedModel, row_seconds: float) -> list[np.ndarray]:
    return [np.arange(op.rows + 1) * row_seconds for op in model.split.operators]


def test_messages_are_as_large_as_those_of_a_real_device(model: SharedModel) -> None:
    count = len(model.split.operators)
    shape = model.split.graph.values[model.split.graph.output_values[0]].shape
    partition = Partition((RowStage(count // 2, 0.5, 1, 2), RowStage(count, 0.4)))
    channels = memory_pair()
    sides = [emulated(model, tables(model, seconds), DeviceClock()) for seconds in (2e-6, 1e-6)]
    server = OffloadServer(channels[1], {model.digest: sides[1]}, print)
    robot = RobotClient(sides[0], channels[0], FixedRate(100.0), print, patience=ENDLESS)
    try:
        robot.use_book(hand_made_book(model, partition))
        assert robot.connection.wait_ready(TIMEOUT)
        image = torch.zeros(1, 3, HEIGHT, WIDTH)
        outcome = infer_until_shared(robot, (image,), torch.zeros(shape))
    finally:
        robot.close()
        server.close()
    schedule = lower(model.split, partition)
    for source, crossed in ((ROBOT, outcome.stats.bytes_up), (SERVER, outcome.stats.bytes_down)):
        assert crossed == sum(model.split.nbytes(t.value, t.region.rows)
                              for t in schedule.transfers if t.source == source) > 0


def test_putting_pieces_together_takes_the_time_of_the_memory_and_copies_nothing(
        model: SharedModel) -> None:
    time = Time(0.0)
    clock = DeviceClock(time.sleep, lambda: time.now)
    join = emulated(model, tables(model, 0.0), clock, copies=1e-6).split.device.join
    pieces = [torch.zeros(1).expand(2, 3, rows, 5) for rows in (4, 6)]
    joined = join(pieces, 2)
    assert joined.shape == (2, 3, 10, 5) and joined.dtype == torch.float32
    assert joined.untyped_storage().nbytes() == 4
    assert time.naps == pytest.approx([1e-6 * 2 * 3 * 10 * 5 * 4])


def test_tables_of_another_model_are_refused(model: SharedModel) -> None:
    with pytest.raises(ValueError, match='tables for'):
        emulated(model, tables(model, 1e-6)[:-1], DeviceClock())
    short = [table[:-1] for table in tables(model, 1e-6)]
    with pytest.raises(ValueError, match='must have seconds for 0 to'):
        emulated(model, short, DeviceClock())
