# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""Books are made anew where that changes something, one at a time, and rarely."""
from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
import time

import pytest
from sharing import SOURCE
from waiting import wait_for

from intradp_ros.graph.serialise import graph_to_json
from intradp_ros.profiling.drift import slowed
from intradp_ros.profiling.measure import measure_profile
from intradp_ros.runtime.models.model import SharedModel
from intradp_ros.systems.sharing.book import book_keeper
from intradp_ros.systems.sharing.book.book_keeper import BookKeeper
from intradp_ros.systems.sharing.book.plan_from_profiles import PlanRequest
from intradp_ros.systems.sharing.book.plan_process import PlanProcess

TIMEOUT = 120.0


@pytest.fixture(scope='module')
def request_of(model: SharedModel) -> PlanRequest:
    """Return what a robot asks for that takes about a second, the server a third of that."""
    measured = measure_profile(model.split, (SOURCE,))
    server = slowed(measured, 0.3 / measured.whole_seconds)
    return PlanRequest(graph_to_json(model.split.captured), slowed(server, 3.0).to_json(),
                       server.to_json(), 100.0, 100.0, 1, 0.00067)


@pytest.fixture
def keeper() -> Iterator[BookKeeper]:
    keeper = BookKeeper(lambda text: None)
    yield keeper
    keeper.close()


@pytest.fixture
def processes(monkeypatch: pytest.MonkeyPatch) -> list[PlanRequest]:
    """Return what real planning processes are started for."""
    started: list[PlanRequest] = []

    def begin(request: PlanRequest, *arguments: object, **named: object) -> PlanProcess:
        started.append(request)
        return PlanProcess(request, *arguments, **named)

    monkeypatch.setattr(book_keeper, 'PlanProcess', begin)
    return started


def first_book(keeper: BookKeeper, request: PlanRequest) -> None:
    keeper.want(request)
    wait_for(lambda: keeper.poll() is not None, TIMEOUT)


def test_what_changes_nothing_starts_no_process(
        keeper: BookKeeper, request_of: PlanRequest, processes: list[PlanRequest]) -> None:
    """A delay that is measured as 0.5 to 0.8 ms, again and again."""
    first_book(keeper, request_of)
    for number in range(30):
        keeper.want(replace(request_of, delay=0.0005 + 0.00001 * number))
        assert keeper.poll() is None and not keeper.busy
    assert len(processes) == keeper.made == 1


def test_changes_without_end_start_one_process(
        keeper: BookKeeper, request_of: PlanRequest, processes: list[PlanRequest]) -> None:
    """Neither while it runs nor in the pause after it is another one started."""
    first_book(keeper, request_of)
    end, number, books = time.monotonic() + TIMEOUT, 0, 0
    while books == 0 or number < 40:
        assert time.monotonic() < end
        number += 1
        keeper.want(replace(request_of, delay=0.05 if number % 2 else 0.08))
        books += keeper.poll() is not None
        time.sleep(0.05)
    assert len(processes) == 2 and books == 1
