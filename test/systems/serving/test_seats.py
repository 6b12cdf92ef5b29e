# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""Seats: what is taken ends in time, nothing is lost, and machine code does what Python does."""
from __future__ import annotations

import math
import random

import numpy as np
import pytest
from whole_site import check_whole

from intradp_ros.systems.serving.site_arrays import (
    Asked,
    IN_TIME,
    LATE,
    LET_GO,
    LOADING,
    make_site,
    NOT_HERE,
    Place,
    TOO_LATE,
)
from intradp_ros.systems.serving.site_functions import PLAIN, site_functions

TIMES = tuple(0.01 * (0.8 + 0.2 * b) for b in range(1, 9))
SLOW = tuple(0.03 * (0.5 + 0.5 * b) for b in range(1, 5))


class Run:
    """A site in model time whose batches take `part` of what is promised."""

    def __init__(self, places, executors, services, functions=PLAIN, part=1.0):
        self.site = make_site(places, executors, services)
        self.functions, self.part, self.now = functions, part, 0.0
        self.ends = [math.inf] * executors
        self.requests, self.fates, self.history = {}, {}, []

    def until(self, time):
        while min(self.ends) <= time:
            executor = int(np.argmin(self.ends))
            self.now = self.ends[executor]
            self.ends[executor] = math.inf
            self.functions.end_batch(self.site, executor, self.now)
            self.note()
            self.start()
        self.now = time

    def start(self):
        for executor in range(len(self.ends)):
            if self.ends[executor] == math.inf:
                rows = self.functions.start_batch(self.site, executor, self.now)
                self.note()
                if rows:
                    self.ends[executor] = self.now + self.part * (
                        self.site.free_at[executor] - self.now)

    def note(self):
        for row in self.site.ended[:self.site.marks[1]]:
            number = self.requests.pop(int(row))
            assert number not in self.fates
            self.fates[number] = int(self.site.fate[row])
            self.history.append((self.now, number, self.fates[number]))

    def ask(self, number, service, remaining, priority=0):
        seat = self.functions.take_seat(
            self.site, Asked(number, service, self.now + remaining, priority), self.now)
        self.note()
        self.history.append((number, seat.executor, seat.batch, round(seat.finish, 12)))
        if seat.executor >= 0:
            self.requests[int(seat.row)] = number
        self.start()
        return seat


def random_run(seed, functions=PLAIN, part=1.0, count=400, priorities=(0,)):
    chance = random.Random(seed)
    places = [Place(0, 0, 8, TIMES), Place(0, 1, 4, SLOW), Place(1, 0, 8, TIMES),
              Place(2, 1, 4, SLOW)][:chance.randint(1, 4)]
    run = Run(places, 3, 2, functions, part)
    load = chance.choice((0.7, 1.5, 5))
    for number in range(count):
        run.until(run.now + chance.expovariate(load * 400 * len(places) / 2))
        service = chance.choice([place.service for place in places])
        tight = chance.choice((1.2, 2, 3, 10))
        run.ask(number, service, tight * (TIMES[-1], SLOW[-1])[service],
                chance.choice(priorities))
        if chance.random() < 0.05 and run.requests:
            functions.withdraw(run.site, chance.choice(list(run.requests)), run.now)
            run.note()
            run.start()
        check_whole(run.site)
    run.until(1e6)
    check_whole(run.site)
    assert not run.requests
    return run


@pytest.mark.parametrize('part', [1.0, 0.5])
@pytest.mark.parametrize('seed', range(12))
def test_what_is_taken_ends_in_time(seed, part):
    run = random_run(seed, part=part)
    assert LATE not in run.fates.values() and LET_GO not in run.fates.values()
    assert list(run.fates.values()).count(IN_TIME) > 50


@pytest.mark.parametrize('seed', range(12))
def test_only_what_gives_way_to_higher_priorities_is_let_go(seed):
    run = random_run(seed, priorities=(0, 0, 1, 2))
    assert LATE not in run.fates.values()


def test_beyond_capacity_the_site_yields_its_capacity():
    chance = random.Random(1)
    run = Run([Place(0, 0, 8, TIMES)], 1, 1)
    capacity = 8 / TIMES[-1]
    for number in range(2000):
        run.until(run.now + chance.expovariate(2 * capacity))
        run.ask(number, 0, 2 * TIMES[-1])
    asked = run.now
    run.until(1e6)
    in_time = list(run.fates.values()).count(IN_TIME)
    assert in_time >= 0.98 * capacity * asked


def test_machine_code_does_the_same():
    functions = site_functions()
    if functions is PLAIN:
        pytest.skip('numba is not installed')
    for seed in range(6):
        plain = random_run(seed, priorities=(0, 1), count=200)
        compiled = random_run(seed, functions, priorities=(0, 1), count=200)
        assert plain.history == compiled.history
        assert plain.site.spent.tolist() == compiled.site.spent.tolist()


def test_a_refused_request_would_be_taken_at_the_time_that_is_told():
    run = Run([Place(0, 0, 8, TIMES)], 1, 1)
    for number in range(200):
        run.ask(number, 0, 2.5 * TIMES[-1])
    refused = run.ask(500, 0, 2.5 * TIMES[-1])
    assert refused.executor == -1 and run.now < refused.finish < run.now + 3 * TIMES[-1]
    run.until(refused.finish - 1e-3)
    assert run.ask(501, 0, 2.5 * TIMES[-1]).executor == -1
    run.until(refused.finish + 1e-6)
    assert run.ask(502, 0, 2.5 * TIMES[-1]).executor == 0


def test_why_there_is_no_seat():
    run = Run([Place(0, 0, 8, TIMES, ready=5.0)], 1, 2)
    assert run.ask(0, 1, 1.0)[1:3] == (NOT_HERE, math.inf)
    assert run.ask(1, 0, 1.0)[1:3] == (LOADING, 5.0)
    assert run.ask(2, 0, 0.0)[1] == TOO_LATE
    run.until(5.0)
    assert run.ask(3, 0, 0.005)[2] == math.inf
    assert run.ask(4, 0, 1.0).executor == 0


def test_higher_priority_displaces_and_takes_the_row():
    run = Run([Place(0, 0, 1, (0.01,))], 1, 1)
    for number in range(3):
        assert run.ask(number, 0, 0.03).executor == 0
    assert run.ask(3, 0, 0.03).executor == -1
    assert run.ask(4, 0, 0.03, 1).executor == 0
    assert run.fates == {2: LET_GO}
    run.until(1.0)
    assert run.fates == {2: LET_GO, 0: IN_TIME, 1: IN_TIME, 4: IN_TIME}


def test_a_lost_executor_lets_all_go_and_another_takes_over():
    run = Run([Place(0, 0, 8, TIMES), Place(1, 0, 8, TIMES)], 2, 1)
    for number in range(20):
        run.ask(number, 0, 1.0)
    run.functions.lose(run.site, 0, run.now)
    run.ends[0] = math.inf
    run.note()
    lost = sorted(run.fates)
    assert len(lost) >= 8 and set(run.fates.values()) == {LET_GO}
    for number in lost:
        assert run.ask(100 + number, 0, 1.0).executor == 1
    run.until(2.0)
    assert len(run.fates) == 20 + len(lost)
    assert all(run.fates[100 + number] == IN_TIME for number in lost)


def test_time_that_is_over_is_noticed_while_the_batch_runs():
    run = Run([Place(0, 0, 8, TIMES)], 1, 1, part=10.0)
    run.ask(0, 0, TIMES[0] * 1.5)
    run.ask(1, 0, 1.0)
    assert run.functions.expire(run.site, TIMES[0] * 2) == 1
    run.note()
    assert run.fates == {0: LATE}
    run.until(2.0)
    assert run.fates[1] == IN_TIME
    assert run.site.spent[0, 1] > 0
