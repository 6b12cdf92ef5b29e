# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""The allocator: operators, sizes of batches, who may share an executor."""
from hypothesis import given
from hypothesis import strategies as st
import numpy as np
import pytest

from intradp_ros.systems.serving.allocator import (
    allocate,
    category,
    frames_in_batch,
    largest_batch,
    may_share,
    operators,
    replicas,
    streams_in_batch,
    tasks_side_by_side,
)
from intradp_ros.systems.serving.arrivals import poisson, streams_of_robots
from intradp_ros.systems.serving.service import Service
from intradp_ros.systems.serving.service_table import exact_table, ServiceTable

times = st.lists(st.floats(0.001, 1), min_size=1, max_size=9).map(sorted)
FALLING = [0.01 * (0.5 + 0.5 * b) for b in range(1, 9)]


def test_four_categories_have_the_operators_of_the_paper():
    assert operators('latency', False) == ('BS', 'MT')
    assert operators('frequency', False) == ('BS', 'MT', 'MF')
    assert operators('latency', True) == ('BS', 'MT', 'MP')
    assert operators('frequency', True) == ('BS', 'MT', 'MF', 'DP', 'MP')


def test_many_sensors_together_are_told_by_their_streams():
    service = Service('a', 'm')
    when, robot = streams_of_robots(9, 10.0, 3.0, 1, jitter=0.3)
    assert category(service, when, robot) == 'frequency'
    assert category(service, when) == 'latency', 'together they look like people'
    assert category(Service('a', 'm', kind='latency'), when, robot) == 'latency'
    asked = poisson(20.0, 300, 1)
    someone = np.random.default_rng(1).integers(0, 5, 300)
    assert category(service, asked, someone) == 'latency'
    assert category(service, asked, np.full(300, -1)) == 'latency'
    assert category(service, []) == 'latency'
    assert category(Service('a', 'm', rate=30.0), []) == 'frequency'


@given(times, st.floats(0.0005, 3))
def test_two_planned_batches_fit_the_deadline(seconds, deadline):
    b = largest_batch(exact_table(seconds), deadline)
    assert b == 1 or 2 * seconds[b - 1] <= deadline + 1e-6
    fits = [k for k in range(1, len(seconds) + 1) if 2 * seconds[k - 1] <= deadline]
    if fits:
        most = max(k / seconds[k - 1] for k in fits)
        assert b / seconds[b - 1] >= most * (1 - 1e-6)


def test_only_batches_that_are_there_and_pay_are_planned():
    table = exact_table(FALLING)
    assert largest_batch(table, 1.0) == 8
    assert largest_batch(table, 1.0, (1, 2, 4)) == 4
    assert largest_batch(table, 0.06) == 5
    assert largest_batch(table, 0.06, (1, 2, 4, 8)) == 4
    assert largest_batch(exact_table([0.01, 0.03, 0.05]), 1.0) == 1


def test_what_is_promised_counts_and_not_the_mean():
    spread = ServiceTable(tuple(FALLING), tuple(0.1 * one for one in FALLING))
    assert largest_batch(spread, 2 * FALLING[7]) < 8
    assert largest_batch(spread, 2 * 1.2 * FALLING[7]) == 8


def test_a_long_batch_of_another_service_keeps_a_short_deadline_from_sharing():
    detector = exact_table([0.036])
    for seconds, fits in ((0.064, True), (0.065, False)):
        other = exact_table([seconds])
        assert may_share(detector, 1, 0.1, other, 1, 1.0) is fits
        assert may_share(other, 1, 1.0, detector, 1, 0.1) is fits


def test_frames_and_replicas_follow_the_equations():
    assert frames_in_batch(0.1, 30, 8) == 3
    assert frames_in_batch(0.01, 30, 8) == 1 and frames_in_batch(-1, 30, 8) == 1
    assert frames_in_batch(9.0, 30, 8) == 8
    assert streams_in_batch(8, 3) == 2 and streams_in_batch(2, 3) == 1
    of_49 = exact_table([1 / 49])
    assert [replicas(rate, of_49, 1) for rate in (1, 97, 98, 99)] == [1, 2, 2, 3]


def test_as_many_tasks_run_side_by_side_as_pay():
    alone = [0.010, 0.015, 0.020]
    tables = {k: exact_table([slower * one for one in alone])
              for k, slower in ((1, 1.0), (2, 1.5), (4, 4.0))}
    assert tasks_side_by_side(tables, 1.0) == (2, 3)
    assert tasks_side_by_side(tables, 0.02) == (2, 1)
    assert tasks_side_by_side(tables, 0.001) == (0, 0)


def test_an_allocation_has_all_sizes():
    fast, slow = {1: exact_table(FALLING)}, {1: exact_table([0.1, 0.19])}
    found = allocate(Service('a', 'm', deadline=0.2), 'frequency', False, fast, 30.0)
    assert (found.batch, found.tasks, found.frames, found.streams, found.groups) == (8, 1, 3, 2, 1)
    assert found.rate == pytest.approx(8 / 0.045)
    found = allocate(Service('a', 'm', deadline=0.4, rate=30.0), 'frequency', True, slow)
    assert found.groups == 3 and found.frames == 1
    assert allocate(Service('a', 'm', deadline=0.05), 'latency', False, slow) is None
    assert allocate(Service('a', 'm', deadline=0.4, rate=30.0), 'latency', True, slow).groups == 1
