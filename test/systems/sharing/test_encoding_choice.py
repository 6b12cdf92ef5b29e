# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st
import pytest
from synthetic import random_split_graph

from intradp_ros.profiling.profile import EncodingTiming, OperatorTiming, Profile
from intradp_ros.schedule.cost import CostModel, LinkModel, WireCost
from intradp_ros.schedule.schedule import ROBOT, SERVER
from intradp_ros.systems.sharing.book.book import ScheduleBook
from intradp_ros.systems.sharing.book.make_book import make_book
from intradp_ros.systems.sharing.judge.simulator import simulate
from intradp_ros.systems.sharing.partition.encoding_choice import best_encodings
from intradp_ros.systems.sharing.partition.lowering import lower
from intradp_ros.systems.sharing.partition.partition import offload

SPLIT = random_split_graph(0)
LINK = LinkModel(1e6, 1e6)


def wire(ratio: float, seconds: float) -> WireCost:
    """Return an encoding that takes so long for a byte on each side, at both ends."""
    return WireCost(ratio, {ROBOT: seconds, SERVER: seconds}, {ROBOT: seconds, SERVER: seconds})


def cost(wires: dict[tuple[int, str], WireCost]) -> CostModel:
    return CostModel(SPLIT, {side: tuple(OperatorTiming((1,), (1e-6,)).table(op.rows)
                                         for op in SPLIT.operators) for side in (ROBOT, SERVER)},
                     wires)


def test_the_smallest_wins_on_a_slow_link_and_the_quickest_on_a_fast_one() -> None:
    both = cost({(0, 'floats'): wire(0.5, 2e-9), (0, 'lz4'): wire(0.7, 2e-10)})
    assert best_encodings(both, LinkModel(1e6, 1e6)) == ((0, 'floats'),)
    assert best_encodings(both, LinkModel(1e8, 1e8)) == ((0, 'lz4'),)
    assert best_encodings(both, LinkModel(1e10, 1e10)) == ()


def test_what_wins_less_than_two_in_a_hundred_is_left_out() -> None:
    assert best_encodings(cost({(0, 'zstd'): wire(0.985, 0)}), LINK) == ()
    assert best_encodings(cost({(0, 'zstd'): wire(0.975, 0)}), LINK) == ((0, 'zstd'),)


def test_lossy_encodings_need_to_be_allowed() -> None:
    costs = cost({(0, 'int8'): wire(0.2, 0), (0, 'floats'): wire(0.6, 0),
                  (1, 'fp16'): wire(0.4, 0), (2, 'int8'): wire(0.3, 0)})
    assert best_encodings(costs, LINK) == ((0, 'floats'),)
    assert best_encodings(costs, LINK, 'int8') == ((0, 'int8'), (2, 'int8'))
    assert best_encodings(costs, LINK, 'fp16') == ((0, 'floats'), (1, 'fp16'))


@settings(max_examples=50)
@given(ratio=st.floats(0.01, 1), encode=st.floats(0, 1e-6), rate=st.floats(1e5, 1e9))
def test_what_is_chosen_is_predicted_to_be_faster(ratio, encode, rate) -> None:
    costs, link = cost({(0, 'zstd'): wire(ratio, encode)}), LinkModel(rate, rate)
    plain = offload(len(SPLIT.operators))
    encoded = replace(plain, encodings=best_encodings(costs, link))
    before, after = (simulate(lower(SPLIT, p), costs, link) for p in (plain, encoded))
    if encoded.encodings:
        assert after.latency < before.latency and after.bytes_up < before.bytes_up
    else:
        assert after == before


def test_the_simulator_charges_encoded_bytes() -> None:
    costs = cost({(0, 'zstd'): WireCost(0.25, {ROBOT: 1e-6}, {SERVER: 2e-6})})
    assert SPLIT.graph.inputs == (0,)
    plain = offload(len(SPLIT.operators))
    before = simulate(lower(SPLIT, plain), costs, LINK)
    after = simulate(lower(SPLIT, replace(plain, encodings=((0, 'zstd'),))), costs, LINK)
    nbytes = SPLIT.graph.values[0].nbytes
    assert after.bytes_up == pytest.approx(before.bytes_up - 0.75 * nbytes, abs=20)
    assert after.latency > before.latency  # 0.25 + 1 + 2 microseconds for each byte, not 1


def profile(encodings: tuple[dict[str, EncodingTiming], ...]) -> Profile:
    timings = tuple(OperatorTiming((1,), (1e-3,)) for _ in SPLIT.operators)
    return Profile('digest', SPLIT.axis, 'device', 1, timings, 1.0, encodings=encodings)


def test_the_robot_says_what_can_be_encoded() -> None:
    """Ratios are its own; speeds the devices'; what the server has no library for is left out."""
    none = ({},) * (len(SPLIT.rows) - 1)
    robot = profile(({'zstd': EncodingTiming(0.5, 1e-9, 2e-9),
                      'delta': EncodingTiming(0.4, 5e-9, 6e-9),
                      'lz4': EncodingTiming(0.6, 1e-9, 2e-9)}, *none))
    server = profile(({'zstd': EncodingTiming(0.9, 3e-9, 4e-9)}, *none))
    known = CostModel.from_profiles(SPLIT, {ROBOT: robot, SERVER: server}).wire
    assert known == {(0, 'zstd'): WireCost(0.5, {ROBOT: 1e-9, SERVER: 3e-9},
                                           {ROBOT: 2e-9, SERVER: 4e-9}),
                     (0, 'delta'): WireCost(0.4, {ROBOT: 5e-9, SERVER: 5e-9},
                                            {ROBOT: 6e-9, SERVER: 6e-9})}


def test_encodings_of_another_number_of_values_are_refused() -> None:
    with pytest.raises(ValueError, match='encodings of 1 values'):
        CostModel.from_profiles(SPLIT, {ROBOT: profile(({},)), SERVER: profile(())})


def test_profiles_with_encodings_survive_a_file() -> None:
    known = profile(({'zstd': EncodingTiming(0.5, 1e-9, 2e-9)}, {}))
    assert Profile.from_json(known.to_json()) == known


@pytest.mark.parametrize('timing', [
    (0.0, 1e-9, 1e-9), (1.5, 1e-9, 1e-9), (0.5, -1.0, 1e-9), (0.5, 1e-9, float('inf')),
    (float('nan'), 1e-9, 1e-9)])
def test_impossible_timings_are_refused(timing: tuple[float, float, float]) -> None:
    known = profile(({'zstd': EncodingTiming(*timing)},))
    with pytest.raises(ValueError, match='not a profile'):
        Profile.from_json(known.to_json())


def test_books_hold_the_encodings_of_what_crosses() -> None:
    """Predictions are those of the entries' own partitions, and no worse than without."""
    known = {(v, 'zstd'): wire(0.5, 1e-9) for v in range(len(SPLIT.rows))}
    plain, encoded = (make_book(cost(w), 'd' * 64, grid=(1.0,)) for w in ({}, known))
    link = LinkModel.symmetric(1.0)
    for before, entry in zip(plain.entries, encoded.entries):
        schedule = lower(SPLIT, entry.partition)
        assert entry.partition.encodings == tuple(
            (v, 'zstd') for v in sorted({t.value for t in schedule.transfers}))
        assert simulate(schedule, cost(known), link).latency == pytest.approx(entry.predicted)
        assert entry.predicted <= before.predicted
    assert encoded.entries[1].predicted < plain.entries[1].predicted  # offload
    assert ScheduleBook.from_json(encoded.to_json()) == encoded


def test_a_book_names_its_lossy_encoding() -> None:
    known = {(v, 'int8'): wire(0.25, 1e-9) for v in range(len(SPLIT.rows))}
    book = make_book(cost(known), 'd' * 64, grid=(1.0,), lossy='int8')
    assert {'int8'} == frozenset().union(*(e.partition.lossy for e in book.entries))
    assert ScheduleBook.from_json(book.to_json()).lossy == 'int8'
    with pytest.raises(ValueError, match='but the lossy encoding of the book'):
        ScheduleBook.from_json(book.to_json().replace('"lossy": "int8"', '"lossy": ""'))
    with pytest.raises(ValueError, match='the lossy encoding of the book'):
        ScheduleBook.from_json(book.to_json().replace('"lossy": "int8"', '"lossy": "gzip"'))
