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
    workers_for,
)

#: Planning of a solver that prints, in the process itself and in one of its workers.
PRINTS = """
import os
from intradp_ros.systems.sharing.book import plan_process
from intradp_ros.core.workers import worker_pool

def chatty(*_, **__):
    os.write(1, b'solver: ')
    with worker_pool(1) as pool:
        pool.submit(os.write, 1, b'worker: ').result()
    return 'the book'

plan_process.book_from_profiles = chatty
plan_process.main()
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
    assert 1 <= workers_for(True) <= workers_for(False)


def test_what_went_wrong_is_told() -> None:
    process = PlanProcess(PlanRequest('no graph', '{}', '{}'), again=True)
    with pytest.raises(PlanningError, match=r'\w'):
        while process.result() is None:
            time.sleep(0.05)


def test_what_solvers_print_is_no_part_of_the_book() -> None:
    job = {'request': asdict(PlanRequest('', '', '')), 'folder': None, 'again': False,
           'parent': os.getpid()}
    told = subprocess.run([sys.executable, '-c', PRINTS], input=json.dumps(job), text=True,
                          stdout=subprocess.PIPE, check=True)
    assert told.stdout == 'the book'
