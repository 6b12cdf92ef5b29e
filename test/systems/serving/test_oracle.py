# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""The oracle beside brute force over all schedules."""
from functools import cache
from itertools import combinations
import math

from hypothesis import given, settings
from hypothesis import strategies as st
import numpy as np
import pytest

from intradp_lab.serving.optimum import exact, most_in_time
from intradp_ros.systems.serving.oracle import bound
from intradp_ros.systems.serving.oracle_kernels import most_work

times = st.integers(0, 12).map(float)


def most_of_all_schedules(arrival, deadline, service, seconds, executors):
    """Try every order of batches on every executor; each starts as soon as it can."""
    @cache
    def most(left, free):
        best = 0
        for size in range(1, len(left) + 1):
            for batch in combinations(left, size):
                kinds = {service[r] for r in batch}
                if len(kinds) > 1 or size > len(seconds[min(kinds)]):
                    continue
                for e in range(executors):
                    ends = (max(free[e], *(arrival[r] for r in batch))
                            + seconds[min(kinds)][size - 1])
                    if all(ends <= deadline[r] + 1e-9 for r in batch):
                        after = tuple(sorted((*free[:e], ends, *free[e + 1:])))
                        rest = tuple(r for r in left if r not in batch)
                        best = max(best, size + most(rest, after))
        return best
    return most(tuple(range(len(arrival))), (-math.inf,) * executors)


@settings(max_examples=150)
@given(st.lists(times, min_size=1, max_size=6), st.integers(1, 9),
       st.lists(st.integers(1, 6).map(float), min_size=1, max_size=4))
def test_the_optimum_is_that_of_all_schedules(arrival, span, seconds):
    arrival = sorted(arrival)
    deadline = [one + span for one in arrival]
    want = most_of_all_schedules(arrival, deadline, [0] * len(arrival), [seconds], 1)
    assert exact(arrival, deadline, seconds) == want


@settings(max_examples=80)
@given(st.lists(st.tuples(times, times), min_size=1, max_size=6),
       st.lists(st.integers(1, 6).map(float), min_size=1, max_size=4))
def test_deadlines_need_only_come_in_the_order_of_arrivals(pairs, seconds):
    arrival = sorted(a for a, _ in pairs)
    deadline = sorted(a + d for a, d in pairs)
    want = most_of_all_schedules(arrival, deadline, [0] * len(arrival), [seconds], 1)
    assert exact(arrival, deadline, seconds) == want


@settings(max_examples=100)
@given(st.lists(st.tuples(times, st.integers(1, 9), st.integers(0, 1)), min_size=1, max_size=5),
       st.lists(st.lists(st.integers(1, 6).map(float), min_size=1, max_size=3),
                min_size=2, max_size=2), st.integers(1, 2))
def test_no_schedule_serves_more_than_the_bound(requests, seconds, executors):
    arrival = [a for a, _, _ in requests]
    deadline = [a + d for a, d, _ in requests]
    service = [s for _, _, s in requests]
    want = most_of_all_schedules(arrival, deadline, service, seconds, executors)
    assert want <= bound(arrival, deadline, service, seconds, executors) <= len(requests)
    held = bound(arrival, deadline, service, seconds, executors, [executors, 0])
    only = [r for r, s in enumerate(service) if s == 0]
    fewer = most_of_all_schedules([arrival[r] for r in only], [deadline[r] for r in only],
                                  [0] * len(only), seconds, executors)
    assert fewer <= held <= len(only)


def test_the_bound_of_one_service_is_near_the_optimum():
    """Whole batches and cuts at will differ by little where many requests come."""
    seconds = [0.01 * (0.3 + 0.7 * b) for b in range(1, 9)]
    for load, near in ((0.5, 1.0), (0.8, 1.01), (1.2, 1.05), (3.0, 1.05)):
        gaps = np.random.default_rng(1).exponential(seconds[-1] / 8 / load, 2000)
        arrival = np.cumsum(gaps)
        deadline = arrival + 3 * seconds[-1]
        most = exact(arrival, deadline, seconds)
        assert most <= bound(arrival, deadline, np.zeros(2000, int), [seconds], 1) <= near * most


def test_machine_code_and_plain_python_agree():
    rng = np.random.default_rng(3)
    arrival = np.cumsum(rng.exponential(1.0, 60))
    seconds = [1.0, 1.5, 1.9, 2.2]
    plain = most_in_time(arrival, arrival + 4, np.array([math.inf, *seconds]))
    assert exact(arrival, arrival + 4, seconds) == plain
    deadline = arrival + rng.uniform(1, 9, 60)
    work = most_work(arrival, deadline, np.full(60, 0.5), 1.0)
    assert bound(arrival, deadline, np.zeros(60, int), [[0.5]], 1) == math.floor(work / 0.5 + 1e-6)


def test_what_cannot_be_judged_is_refused():
    with pytest.raises(ValueError, match='order of the arrivals'):
        exact([0, 1], [9, 8], [1])
    with pytest.raises(ValueError, match='must be numbers'):
        exact([0, math.nan], [1, 2], [1])
    with pytest.raises(ValueError, match='above 0'):
        bound([0], [1], [0], [[0.0]], 1)
    with pytest.raises(ValueError, match='below 1'):
        bound([0], [1], [1], [[1.0]], 1)
    assert exact([], [], [1]) == 0
