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
import torch
from torch import nn

from intradp_ros.graph.capture import capture
from intradp_ros.graph.serialise import graph_to_json
from intradp_ros.profiling.profile import Profile
from intradp_ros.systems.sharing.book.plan_from_profiles import PlanRequest
from intradp_ros.systems.sharing.book.plan_process import (
    give_way,
    MAX_BYTES,
    MAX_SECONDS,
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
#: Planning that says what it may take.
LIMITS = """
import resource
from intradp_ros.systems.sharing.book import plan_process

plan_process.book_from_profiles = lambda *_, **__: ' '.join(
    str(resource.getrlimit(kind)[0]) for kind in (resource.RLIMIT_CPU, resource.RLIMIT_DATA))
plan_process.main()
"""
TOO_LONG = """
from intradp_ros.core.workers import worker_pool
from intradp_ros.systems.sharing.book.plan_process import bound

def endless(_):
    while True:
        pass

bound(5, 1 << 40)
with worker_pool(1, 'fork') as pool:
    list((pool.map if {workers} else map)(endless, [0]))
"""
TOO_MUCH = """
from intradp_ros.systems.sharing.book.plan_process import bound
bound(1000, 3 << 30)
bytearray(4 << 30)
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


def job() -> str:
    """Return what a planning process reads."""
    return json.dumps({'request': asdict(PlanRequest('', '', '')), 'folder': None, 'former': None,
                       'parent': os.getpid()})


@pytest.mark.parametrize(('again', 'nice', 'policy'), [
    (False, 10, os.SCHED_OTHER), (True, 19, os.SCHED_BATCH)])
def test_planning_gives_way(again: bool, nice: int, policy: int) -> None:
    with subprocess.Popen([sys.executable, '-S', '-c', WAITS], stdin=subprocess.PIPE) as child:
        give_way(child.pid, again)
        assert os.getpriority(os.PRIO_PROCESS, child.pid) >= nice
        assert os.sched_getscheduler(child.pid) == policy
        child.communicate()
    give_way(child.pid, again)  # it has ended, which is not an error


def test_a_limited_process_rests() -> None:
    """What computes all the time gets no more than its share of a core."""
    with subprocess.Popen([sys.executable, '-c', WORKS.format(share=0.2)], text=True,
                          stdout=subprocess.PIPE) as child:
        reported, _ = child.communicate()
    computed, passed = map(float, reported.split())
    assert computed <= 0.3 * passed


def test_what_went_wrong_is_reported() -> None:
    process = PlanProcess(PlanRequest('no graph', '{}', '{}'))
    with pytest.raises(PlanningError, match=r'\w'):
        while process.result() is None:
            time.sleep(0.05)


@pytest.mark.parametrize(('script', 'reported'), [
    (TOO_LONG.format(workers=False), 'PlanningError: planning takes more than 5 s of a processor'),
    (TOO_LONG.format(workers=True), 'PlanningError: planning takes more than 5 s of a processor'),
    (TOO_MUCH, 'MemoryError')])
def test_planning_is_bounded(script: str, reported: str) -> None:
    """Nobody keeps a planner for days, in itself or in its workers, by a graph made for that."""
    ended = subprocess.run([sys.executable, '-c', script], text=True, capture_output=True,
                           timeout=120)
    assert ended.returncode == 1
    assert ended.stderr.strip().rpartition('\n')[2].endswith(reported)


def test_a_job_is_under_these_bounds() -> None:
    ended = subprocess.run([sys.executable, '-c', LIMITS], input=job(), text=True,
                           stdout=subprocess.PIPE, check=True)
    assert ended.stdout == f'{MAX_SECONDS} {MAX_BYTES}'


def test_vast_graphs_are_refused() -> None:
    """Also if the planner itself would let them through: 2^24 rows took it 2.3 GB."""
    graph = json.loads(graph_to_json(capture(nn.ReLU(), (torch.zeros(1, 1, 8, 1),))))
    for value in graph['values']:
        value['shape'][2] = 1 << 22
    profile = Profile('a' * 64, 2, 'cpu', 1, (), 1.0).to_json()
    process = PlanProcess(PlanRequest(json.dumps(graph), profile, profile))
    with pytest.raises(PlanningError, match='too many rows'):
        while process.result() is None:
            time.sleep(0.05)


def test_what_solvers_print_is_no_part_of_the_book() -> None:
    reported = subprocess.run([sys.executable, '-c', PRINTS], input=job(), text=True,
                          stdout=subprocess.PIPE, check=True)
    assert reported.stdout == 'the book'
