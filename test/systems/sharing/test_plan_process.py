# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""Planning in a process of its own."""
from __future__ import annotations

from dataclasses import asdict
import json
import os
import subprocess
import sys
import time

import pytest

from intradp_ros.systems.sharing.book.plan_from_profiles import PlanRequest
from intradp_ros.systems.sharing.book.plan_process import (
    give_way,
    PlanningError,
    PlanProcess,
)

#: Planning of a solver that prints, in the process itself and in one of its workers.
PRINTS = """
import os
from intradp_ros.systems.sharing.book import plan_process
from intradp_ros.core.workers import worker_pool

def chatty(*_, **__):
    os.write(1, b'solver: ')
    with worker_pool(1) as pool:
        next(pool.map(os.write, [1], [b'worker: ']))
    return 'the book'

plan_process.book_from_profiles = chatty
plan_process.main()
"""
WORKS = """
import time
from intradp_ros.systems.sharing.book.plan_process import limited
wall, processor = time.monotonic(), time.process_time()
with limited({share}):
    while time.process_time() < processor + 0.3:
        pass
print(time.process_time() - processor, time.monotonic() - wall)
"""
WAITS = 'import sys; sys.stdin.read()'


@pytest.mark.parametrize(('again', 'nice', 'policy'), [
    (False, 10, os.SCHED_OTHER), (True, 19, os.SCHED_BATCH)])
def test_planning_gives_way(again: bool, nice: int, policy: int) -> None:
    with subprocess.Popen([sys.executable, '-S', '-c', WAITS], stdin=subprocess.PIPE) as child:
        give_way(child.pid, again)
        assert os.getpriority(os.PRIO_PROCESS, child.pid) >= nice
        assert os.sched_getscheduler(child.pid) == policy
        child.communicate()
    give_way(child.pid, again)  # it has ended, which is no error


def test_a_limited_process_rests() -> None:
    """What computes all the time gets no more than its share of a core."""
    with subprocess.Popen([sys.executable, '-c', WORKS.format(share=0.2)], text=True,
                          stdout=subprocess.PIPE) as child:
        told, _ = child.communicate()
    computed, passed = map(float, told.split())
    assert computed <= 0.3 * passed


def test_what_went_wrong_is_told() -> None:
    process = PlanProcess(PlanRequest('no graph', '{}', '{}'))
    with pytest.raises(PlanningError, match=r'\w'):
        while process.result() is None:
            time.sleep(0.05)


def test_what_solvers_print_is_no_part_of_the_book() -> None:
    job = {'request': asdict(PlanRequest('', '', '')), 'folder': None, 'former': None,
           'parent': os.getpid()}
    told = subprocess.run([sys.executable, '-c', PRINTS], input=json.dumps(job), text=True,
                          stdout=subprocess.PIPE, check=True)
    assert told.stdout == 'the book'
