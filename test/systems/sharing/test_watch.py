# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""A side that is slower than its profile says so; one that keeps to it does not."""
from __future__ import annotations

from dataclasses import replace
import math
import time

import pytest
from sharing import ENDLESS, FixedRate, hand_made_book, TIMEOUT
from small_models import seeded, UNet
import torch
from waiting import wait_for

from intradp_lab.emulation.emulated_device import DeviceClock, emulated
from intradp_ros.link.chunk_size import LEAST_CHUNK_BYTES
from intradp_ros.link.delay import DelayMeter
from intradp_ros.profiling.drift import DriftMeter
from intradp_ros.profiling.profile import (
    EncodingTiming,
    JoinCost,
    OperatorTiming,
    Profile,
    TransportCost,
)
from intradp_ros.runtime.models.model import share_module, SharedModel
from intradp_ros.runtime.transport.memory_channel import memory_pair
from intradp_ros.schedule.joins import joins_of
from intradp_ros.schedule.schedule import ROBOT, SERVER
from intradp_ros.systems.sharing.book.critical_paths import LatencyModel, Path
from intradp_ros.systems.sharing.book.watch import DelayWatch, DriftWatch
from intradp_ros.systems.sharing.partition.lowering import lower
from intradp_ros.systems.sharing.partition.partition import offload, Partition, RowStage
from intradp_ros.systems.sharing.session.connection import HEARTBEAT
from intradp_ros.systems.sharing.session.pair import in_process_pair
from intradp_ros.systems.sharing.session.robot import RobotClient
from intradp_ros.systems.sharing.session.server import OffloadServer
from intradp_ros.systems.sharing.strategies import (
    LOCAL,
    OFFLOAD,
)

HEIGHT, WIDTH, WINDOW, ROW_SECONDS = 48, 64, 4, 2e-5


@pytest.fixture(scope='module')
def model() -> SharedModel:
    return share_module(seeded(UNet, HEIGHT, WIDTH), (torch.zeros(1, 3, HEIGHT, WIDTH),))


@pytest.fixture(scope='module')
def profile(model: SharedModel) -> Profile:
    timings = tuple(OperatorTiming((1,), (ROW_SECONDS,)) if op.rows == 1 else OperatorTiming(
        (1, op.rows), (ROW_SECONDS, ROW_SECONDS * op.rows)) for op in model.split.operators)
    return Profile(model.digest, model.split.axis, 'emulated', 1, timings,
                   sum(t.seconds[-1] for t in timings))


def device(model: SharedModel, profile: Profile, factor: float) -> SharedModel:
    """Return the model on an emulated device that takes `factor` times its profile's time."""
    tables = [t.table(op.rows) * factor for t, op in zip(profile.timings, model.split.operators)]
    return emulated(model, tables, DeviceClock())


def watch(model: SharedModel, profile: Profile, received: list[Profile]) -> DriftWatch:
    return DriftWatch(model.split, profile, received.append, DriftMeter(WINDOW))


def test_both_sides_notice_what_has_become_slow(model: SharedModel, profile: Profile) -> None:
    robot_received: list[Profile] = []
    server_received: list[Profile] = []
    near, far = memory_pair()
    server = OffloadServer(far, {model.digest: device(model, profile, 8.0)}, print,
                           {model.digest: watch(model, profile, server_received)})
    robot = RobotClient(device(model, profile, 8.0), near, FixedRate(100.0), print,
                        patience=ENDLESS, watch=watch(model, profile, robot_received))
    try:
        robot.use_book(hand_made_book(model))
        assert robot.connection.wait_ready(TIMEOUT)
        for _ in range(WINDOW + 1):
            robot.infer((torch.zeros(1, 3, HEIGHT, WIDTH),))
    finally:
        robot.close()
        server.close()
    for received in (robot_received, server_received):
        assert len(received) == 1 and received[0].scale > 4 * profile.scale
        assert received[0].timings == profile.timings


@pytest.mark.parametrize(('side', 'strategy'), [(ROBOT, LOCAL), (SERVER, OFFLOAD)])
def test_a_robot_learns_from_both_sides_how_fast_they_are(
        model: SharedModel, profile: Profile, side: str, strategy: str) -> None:
    whole = profile.whole_seconds
    known = {LOCAL: LatencyModel((Path(whole, 0.0, 0.0, 0.0),), (whole, 0.0)),
             OFFLOAD: LatencyModel((Path(0.0, whole, 1.0, 0.0),), (0.0, whole))}
    book = hand_made_book(model)
    book = replace(book, entries=tuple(
        replace(e, anywhere=known[e.strategy], predicted=known[e.strategy].seconds(e.mbps))
        for e in book.entries if e.strategy in known))
    slow = device(model, profile, 8.0)
    with in_process_pair(slow, FixedRate(100.0), patience=ENDLESS) as pair:
        pair.robot.use_book(book)
        assert pair.robot.connection.wait_ready(TIMEOUT)
        for _ in range(3):
            pair.robot.infer((torch.zeros(1, 3, HEIGHT, WIDTH),), strategy=strategy)
        speeds = pair.robot.choice.speeds
        wait_for(lambda: speeds.factor(side, 0.0) > 4)


def test_what_a_program_should_take(model: SharedModel, profile: Profile) -> None:
    schedule = lower(model.split, offload(len(model.split.operators)))
    expected = watch(model, profile, []).expected(model.split, schedule, SERVER)
    assert expected == pytest.approx(profile.whole_seconds)


def test_what_a_program_puts_together_takes_time(model: SharedModel, profile: Profile) -> None:
    banded = Partition((RowStage(len(model.split.operators), 0.0, 1, 4),))
    schedule, once = lower(model.split, banded), 1.0
    plain, joining = (watch(model, each, []).expected(model.split, schedule, SERVER)
                      for each in (profile, replace(profile, joining=JoinCost(once))))
    times = sum(each.times for each in joins_of(model.split, schedule, SERVER, has_inputs=False))
    assert times > 0 and joining - plain == pytest.approx(once * times)


def test_moving_bytes_explains_some_of_what_takes_longer(
        model: SharedModel, profile: Profile) -> None:
    crowded = replace(profile, cores=1, moving=TransportCost(send_chunk=1.0, receive_chunk=2.0))
    schedule = lower(model.split, offload(len(model.split.operators)))
    up, down = 3 * HEIGHT * WIDTH * 4, sum(
        model.split.graph.values[v].nbytes for v in set(model.split.graph.output_values))
    chunks_up, chunks_down = (math.ceil(nbytes / LEAST_CHUNK_BYTES) for nbytes in (up, down))
    received: list[Profile] = []
    seen, whole = watch(model, crowded, received), profile.whole_seconds
    moving = seen.moving(model.split, schedule, SERVER)
    assert moving == pytest.approx(2 * chunks_up + chunks_down)
    assert watch(model, profile, []).moving(model.split, schedule, SERVER) == 0.0
    half = {'zstd': EncodingTiming(0.5, 0.0, 0.0)}
    encoded = replace(schedule, transfers=tuple(
        replace(t, encoding='zstd') for t in schedule.transfers))
    smaller = watch(model, replace(crowded, encodings=(half,) * len(model.split.rows)), [])
    assert smaller.moving(model.split, encoded, SERVER) == pytest.approx(sum(
        each * math.ceil(nbytes / (2 * LEAST_CHUNK_BYTES)) for each, nbytes in (
            (2, up), (1, down))))
    for measured in (whole, whole + 0.5 * moving, whole + moving):
        for _ in range(2 * WINDOW):
            seen.ran(measured, whole, moving=moving)
    assert received == []
    for _ in range(2 * WINDOW):
        seen.ran(4 * whole + moving, whole, moving=moving)
    assert len(received) == 1


def test_what_was_broken_off_counts_only_when_it_was_late(
        model: SharedModel, profile: Profile) -> None:
    received: list[Profile] = []
    seen, whole = watch(model, profile, received), profile.whole_seconds
    for _ in range(2 * WINDOW):
        seen.ran(0.1 * whole, whole, complete=False)
    assert received == []
    for _ in range(WINDOW):
        seen.ran(3.0 * whole, whole, complete=False)
    assert len(received) == 1 and received[0].scale == pytest.approx(3.0, rel=0.2)


def test_little_compute_says_nothing_and_changes_are_not_reported_in_a_row(
        model: SharedModel, profile: Profile) -> None:
    received: list[Profile] = []
    seen, whole = watch(model, profile, received), profile.whole_seconds
    for _ in range(2 * WINDOW):
        seen.ran(0.5 * whole, 0.01 * whole)
    assert received == []
    for factor in (8.0, 1.0):
        for _ in range(2 * WINDOW):
            seen.ran(factor * whole, whole)
    assert len(received) == 1


def test_a_profile_of_another_graph_is_refused(model: SharedModel, profile: Profile) -> None:
    other = Profile(model.digest, 3 - model.split.axis, 'emulated', 1, profile.timings, 1.0)
    with pytest.raises(ValueError, match='another graph or split axis'):
        watch(model, other, [])


def test_a_robot_says_what_the_link_delays(model: SharedModel) -> None:
    """Pings find a delay of 40 ms, and it is reported once."""
    received: list[float] = []
    near, far = memory_pair(delay=0.04)
    server = OffloadServer(far, {model.digest: model}, print)
    robot = RobotClient(model, near, FixedRate(100.0), print,
                        delay_watch=DelayWatch(received.append, DelayMeter(WINDOW)))
    try:
        time.sleep(4 * WINDOW * HEARTBEAT)
    finally:
        robot.close()
        server.close()
    assert len(received) == 1 and 0.03 < received[0] < 0.06
