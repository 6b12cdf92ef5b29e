# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""A run needs one book: what is measured while it lasts changes nothing worth another."""
from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
import time

from node_processes import DENSE, LATCHED, nodes, Observer, own_domain, PATIENT, picture
import pytest

from intradp_ros.msg import ScheduleBook


@pytest.fixture
def observer(tmp_path: Path) -> Iterator[Observer]:
    with own_domain(tmp_path, anew=True):
        observer = Observer()
        yield observer
        observer.close()


@pytest.mark.parametrize('seconds', [8.0, pytest.param(600.0, marks=pytest.mark.slow)])
def test_one_book_is_made_in_a_run(observer: Observer, tmp_path: Path, seconds: float) -> None:
    books: list[ScheduleBook] = []
    observer.node.create_subscription(ScheduleBook, 'schedule_book', books.append, LATCHED)
    with nodes(tmp_path / 'logs') as started:
        started.start('planner_node', {'grid.points': 3, 'grid.low_mbps': 20.0,
                                       'grid.high_mbps': 2000.0})
        started.start('offload_node', {'models': [DENSE]})
        started.start('inference_node', {'model': DENSE, **PATIENT})
        observer.wait(lambda: observer.link.connected, 'a book')
        observer.meet_robot(picture(0))
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            observer.infer(picture(1))
        observer.wait(lambda: 'books_made' in observer.status('planner_node'), 'a report')
        assert observer.status('planner_node')['books_made'] == '1' and len(books) == 1
