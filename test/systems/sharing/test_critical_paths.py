# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""A few paths say what the exact judge says at any rate, on devices of any speed."""
from __future__ import annotations

from dataclasses import replace
import json
import math

from hypothesis import given, settings
from hypothesis import strategies as st
import pytest
from synthetic import flat_cost, random_split_graph

from intradp_ros.profiling.profile import TransportCost
from intradp_ros.schedule.schedule import ROBOT, SERVER
from intradp_ros.systems.sharing.book.book import ScheduleBook
from intradp_ros.systems.sharing.book.catch_up_curve import catch_up_curve, CURVE_RATIOS, POINTS
from intradp_ros.systems.sharing.book.critical_paths import anywhere, LatencyModel, Path
from intradp_ros.systems.sharing.book.make_book import book_of, PlanningProblem
from intradp_ros.systems.sharing.judge.judge import Judge
from intradp_ros.systems.sharing.judge.simulator import simulate
from intradp_ros.systems.sharing.partition.lowering import lower
from intradp_ros.systems.sharing.partition.partition import (
    local,
    offload,
    Pace,
    Partition,
    RowStage,
)

GRID = (0.05, 0.5, 5.0)
PLAYED = len(CURVE_RATIOS) * POINTS


def setting_of(seed: int) -> PlanningProblem:
    cost = flat_cost(random_split_graph(seed, 8, rows=40), server=5e-4)
    return PlanningProblem(cost, delay=1e-3, overhead=1e-4)


def partitions(count: int) -> list[Partition]:
    both = [Partition((RowStage(count // 2, share, 4, 3), RowStage(count, 1 - share, 2, 6)))
            for share in (0.3, 0.6)]
    return [local(count), offload(count), *both,
            Partition((RowStage(count, 0.5, 8, 8, Pace(0.5, upward=True)),))]


@given(st.integers(0, 10**6), st.floats(-0.6, 1.38), st.floats(-0.6, 1.38), st.floats(-3.0, 1.6))
@settings(max_examples=12)
def test_paths_tell_what_the_judge_says(seed: int, robot: float, server: float, rate: float,
                                        ) -> None:
    setting = setting_of(seed)
    factors, mbps = (math.exp(robot), math.exp(server)), math.exp(rate)
    all_of_them = partitions(len(setting.cost.split.operators))
    known = anywhere(setting.cost, setting.link, all_of_them, GRID)
    judge = Judge(setting.cost.scaled(dict(zip((ROBOT, SERVER), factors))), setting.link(mbps))
    for partition in all_of_them:
        reported, true = known[partition].seconds(mbps, *factors), judge(partition).latency
        assert reported <= true * 1.02 and reported >= true * 0.9


def test_a_book_of_another_format_has_to_be_made_anew() -> None:
    data = json.loads(book_of(setting_of(3), 'd' * 64, GRID[:1]).to_json())
    data['format'] = 'intradp-schedule-book/6'
    with pytest.raises(ValueError, match='plan again with this version'):
        ScheduleBook.from_json(json.dumps(data))


def test_books_tell_it_of_every_schedule() -> None:
    setting = setting_of(3)
    book = book_of(setting, 'd' * 64, GRID)
    assert book.knows_speeds and ScheduleBook.from_json(book.to_json()) == book
    assert book.knows_catch_up
    for entry in book.entries:
        assert entry.anywhere is not None
        curve = catch_up_curve(setting.cost, setting.link(1.0), entry.partition, book.curve_rates)
        assert entry.anywhere.catch_up == curve
        assert entry.anywhere.seconds(entry.mbps) == pytest.approx(entry.predicted, rel=0.02)
        played = simulate(lower(setting.cost.split, entry.partition), setting.cost,
                          setting.link(1.0))
        assert entry.anywhere.crossing == pytest.approx(
            (played.sending[ROBOT], played.sending[SERVER]))
    busiest = max(e.anywhere.busy[0] for e in book.entries if e.anywhere)
    assert book.most_busy[0] == busiest
    assert len(book.different()) == len({e.partition for e in book.entries})


@pytest.mark.parametrize('seed', range(4))
def test_what_moving_bytes_takes_from_operators_counts_as_busy(seed: int) -> None:
    """Of a robot that never waits, that is all of the time."""
    cost = flat_cost(random_split_graph(seed, 8, rows=40), server=1e-9)
    crowded = replace(cost, moving={ROBOT: TransportCost(1e-4, 1e-8, 2e-4, 2e-8)})
    setting, grid = PlanningProblem(crowded, delay=0.0, overhead=0.0), (1e5, 1e6)
    partition = partitions(len(cost.split.operators))[2]
    robot, server = anywhere(crowded, setting.link, [partition], grid)[partition].busy
    played = simulate(lower(cost.split, partition), crowded, setting.link(math.sqrt(1e11)))
    assert robot == pytest.approx(played.latency, rel=1e-3)
    assert robot > 1.03 * played.busy[ROBOT] and server == played.busy[SERVER]


@pytest.mark.parametrize('spoil', [
    {'paths': []}, {'paths': [[0, 0, 0, math.nan]]}, {'paths': [[0, 0, 0]]},
    {'paths': [[0, 0, 0, 1]] * 9}, {'busy': [-1, 0]}, {'busy': [1]},
    {'crossing': [-1, 0]}, {'crossing': [1]}, {'crossing': [math.inf, 0]},
    {'catch_up': [1.0] * POINTS}, {'catch_up': [1.0] * 10_000}, {'catch_up': None},
    {'catch_up': [math.nan] * PLAYED}, {'catch_up': [-1.0] * PLAYED},
    {'catch_up': [1e7] * PLAYED}, {'catch_up': [[1.0]] * PLAYED}])
def test_impossible_paths_are_refused(spoil: dict[str, object]) -> None:
    book = book_of(setting_of(3), 'd' * 64, GRID[:1])
    known = {'paths': [[0.0, 0.0, 0.0, 1.0]], 'busy': [1.0, 1.0],
             'crossing': [1.0, 1.0], 'catch_up': [1.0] * PLAYED}
    text = replace(book, entries=book.entries[:1]).to_json()
    data = json.loads(text)
    data['entries'][0]['anywhere'] = known
    assert ScheduleBook.from_json(json.dumps(data)).knows_catch_up
    data['entries'][0]['anywhere'] = {**known, **spoil}
    with pytest.raises(ValueError, match='not a schedule table'):
        ScheduleBook.from_json(json.dumps(data))


def test_tables_with_the_former_name_of_a_field_are_read() -> None:
    book = book_of(setting_of(3), 'd' * 64, GRID[:1])
    known = LatencyModel((Path(0.0, 0.0, 0.0, 1.0),), (1.0, 1.0), (1.0,) * PLAYED, (1.0, 1.0))
    book = replace(book, entries=(replace(book.entries[0], anywhere=known),))
    text = book.to_json()
    former = text.replace('"catch_up"', '"recourse"')
    assert former != text and ScheduleBook.from_json(former) == book
