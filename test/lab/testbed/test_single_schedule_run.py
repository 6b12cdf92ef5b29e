# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""Schedules of a book run one by one, live, at the bandwidths that they were made for."""
from __future__ import annotations

import os
from pathlib import Path

import pytest
from small_models import seeded, UNet
import torch

from intradp_lab.testbed.experiment import place
from intradp_lab.testbed.single_schedule_run import (
    busy,
    correction,
    load_frames,
    MOST_CORRECTED,
    pinned,
    PinnedRun,
)
from intradp_lab.testbed.trial import Trial
from intradp_ros.core.processes import Command, module_arguments
from intradp_ros.graph.serialise import save_graph
from intradp_ros.profiling.profile import OperatorTiming, Profile
from intradp_ros.runtime.models.model import share_module, SharedModel
from intradp_ros.runtime.transport.timeline import Event
from intradp_ros.schedule.cost import CostModel
from intradp_ros.schedule.schedule import ROBOT, SERVER
from intradp_ros.systems.sharing.book.book import Entry, ScheduleBook
from intradp_ros.systems.sharing.book.make_book import make_book
from intradp_ros.systems.sharing.partition.partition import local, offload, Partition, RowStage
from intradp_ros.systems.sharing.strategies import (
    LOCAL,
    OFFLOAD,
    SHARED,
)

HEIGHT, WIDTH, FRAMES, TIMEOUT = 48, 64, 3, 120.0


@pytest.fixture(scope='module')
def model() -> SharedModel:
    return share_module(seeded(UNet, HEIGHT, WIDTH), (torch.zeros(1, 3, HEIGHT, WIDTH),))


def book_of(model: SharedModel) -> ScheduleBook:
    count = len(model.split.operators)
    half = Partition((RowStage(count, 0.5),))
    return ScheduleBook(model.digest, model.split.axis, 0.0, 0.0, (
        Entry(10.0, LOCAL, 0.1, local(count), 0.0, 5.0, 20.0),
        Entry(10.0, OFFLOAD, 0.1, offload(count), 0.0, 5.0, 20.0),
        Entry(40.0, SHARED, 0.05, half, 0.0, 20.0)))


def profile(model: SharedModel, seconds: float) -> Profile:
    """Return the profile of a device on which every operator takes so long, whatever its rows."""
    timings = tuple(OperatorTiming((1,), (seconds,)) for _ in model.split.operators)
    return Profile(model.digest, model.split.axis, 'imagined', 1, timings,
                   seconds * len(timings))


@pytest.mark.parametrize('mbps', [0.01, 1.0, 39.0, 4000.0])
def test_one_schedule_is_for_every_bandwidth(model: SharedModel, mbps: float) -> None:
    book = book_of(model)
    for index, entry in enumerate(book.entries):
        alone = pinned(book, index)
        assert alone.choose(mbps, entry.strategy) == 0
        assert alone.entries[0].partition == entry.partition
        assert [e.strategy for e in alone.entries] == (
            [LOCAL, OFFLOAD] if entry.strategy == LOCAL else [entry.strategy])
        assert ScheduleBook.from_json(alone.to_json()) == alone


def test_it_runs_by_plan(model: SharedModel) -> None:
    profiles = {ROBOT: profile(model, 4e-3), SERVER: profile(model, 1e-3)}
    cost = CostModel.from_profiles(model.split, profiles)
    book = make_book(cost, model.digest, grid=(10.0,))
    assert book.knows_catch_up
    assert all(not pinned(book, index).knows_catch_up and pinned(book, index).knows_speeds
               for index in range(len(book.entries)))


@pytest.mark.parametrize(('rates', 'factor'), [
    ([], 1.0), ([0.0, 0.0], 1.0), ([2.05, 1.95, 9.0], 1.0), ([1.6, 0.0, 1.6], 1.25),
    ([2.5], 0.8), ([0.1], MOST_CORRECTED), ([40.0], 1.0 / MOST_CORRECTED)])
def test_links_are_corrected_by_what_is_measured(rates: list[float], factor: float) -> None:
    """A link for 2 Mbit/s; little is left alone, and no measurement changes it by much."""
    assert correction(2.0, rates) == pytest.approx(factor)


def test_lanes_are_added_up() -> None:
    events = [Event(ROBOT, 'compute', 'a', 0.0, 1.0), Event(ROBOT, 'wait', 'b', 1.0, 2.0),
              Event(ROBOT, 'compute', 'c', 2.0, 2.5), Event('uplink', 'transfer', 'd', 0.5, 0.75)]
    assert busy(events) == {ROBOT: 1.5, SERVER: 0.0, 'uplink': 0.25, 'downlink': 0.0}


@pytest.mark.slow
@pytest.mark.skipif(os.geteuid() != 0, reason='network namespaces need root')
def test_a_live_run(model: SharedModel, tmp_path: Path) -> None:
    archive, files = tmp_path / 'model.graph', {s: tmp_path / f'{s}.json' for s in (ROBOT, SERVER)}
    save_graph(model.split.captured, archive)
    for side, path in files.items():
        path.write_text(profile(model, 1e-3 if side == ROBOT else 1e-4).to_json())
    book_of(model).save(tmp_path / 'book.json')
    trial = Trial(str(archive), model.split.axis, {s: str(p) for s, p in files.items()}, (),
                  str(tmp_path / 'frames.json'))
    with place(tmp_path) as where:
        run = PinnedRun(trial, str(tmp_path / 'book.json'), (0, 1, 2), FRAMES,
                        dict(where.link.namespaces))
        run.save(tmp_path / 'run.json')
        assert PinnedRun.load(tmp_path / 'run.json') == run
        _, robot = (where.start(Command(side, module_arguments(
            'intradp_lab.testbed.single_schedule_run', side, str(tmp_path / 'run.json')),
            where.link.exec_prefix(side), environment=where.environment))
            for side in (SERVER, ROBOT))
        robot.wait_for_line('^phase done$', TIMEOUT)
    found = load_frames(tmp_path / 'frames.json')
    assert [frames.entry for frames in found] == [0, 1, 2]
    assert all(len(frames.latency) + frames.failed == FRAMES for frames in found)
    assert all(frames.latency for frames in found)
    operators = len(model.split.operators)
    assert all(each >= 0.9e-3 * operators for each in found[0].latency)
    assert all(lanes['uplink'] == lanes[SERVER] == 0.0 for lanes in found[0].busy)
    assert any(lanes['uplink'] > 0.0 for lanes in found[1].busy)  # the server's report may be late
