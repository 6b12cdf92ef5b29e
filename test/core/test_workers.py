# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""Processes that compute end with the one that they compute for, however that ends."""
from __future__ import annotations

from contextlib import suppress
import os
from pathlib import Path
import signal
import subprocess
import sys
import time

from dispositions import heeded
import pytest
from waiting import wait_for

from intradp_ros.core.workers import worker_pool

PARENT = """\
import os, sys, time
from intradp_ros.core.workers import worker_pool

def work(number):
    with open(f'/proc/{os.getppid()}/fd/1', 'w') as output:  # what workers print is lost
        output.write(f'{os.getpid()}\\n')  # at once, lest two workers' lines be mixed
    time.sleep(600)

if __name__ == '__main__':
    with worker_pool(2, sys.argv[1]) as pool:
        list(pool.map(work, range(2)))
"""
HASTY = """\
import sys, time
from intradp_ros.core.workers import worker_pool

if __name__ == '__main__':
    try:
        with worker_pool(2, sys.argv[1]) as pool:
            print('starting', flush=True)
            list(pool.map(time.sleep, [600, 600]))
    except KeyboardInterrupt:
        sys.exit(3)
"""
#: Of a thousand steps, Ctrl-C comes in the midst of each, while a pool hands out and waits.
INTERRUPTED = """\
import sys, time
from intradp_ros.core.workers import worker_pool

def interrupt_at(step):
    count = 0
    def trace(frame, event, argument):
        nonlocal count
        count += 1
        if count == step:
            sys.settrace(None)
            raise KeyboardInterrupt
        return trace
    sys.settrace(trace)

def last(step):
    with worker_pool(1, sys.argv[1]) as pool:
        try:
            interrupt_at(step)
            list(pool.map(time.sleep, [0, 0, 0.01]))
        finally:
            sys.settrace(None)

if __name__ == '__main__':
    for step in range(1, 1000):
        try:
            last(step)
        except KeyboardInterrupt:
            continue
        break
    print(step)
"""
PLANNER = """\
import os, subprocess, sys, time
CHILD = 'import sys, time; from intradp_ros.core.workers import end_with; ' \\
        'end_with(int(sys.argv[1])); print(1, flush=True); time.sleep(600)'
child = subprocess.Popen([sys.executable, '-c', CHILD, str(os.getpid())], stdout=subprocess.PIPE)
child.stdout.readline()
print(child.pid, child.pid, sep='\\n', flush=True)
time.sleep(600)
"""


def is_there(pid: int) -> bool:
    try:
        with open(f'/proc/{pid}/stat') as file:
            return file.read().rpartition(')')[2].split()[0] != 'Z'
    except FileNotFoundError:
        return False


@pytest.mark.parametrize('arguments', [[PARENT, 'fork'], [PARENT, 'spawn'], [PLANNER]])
@pytest.mark.parametrize('number', [signal.SIGKILL, signal.SIGINT])
def test_nobody_survives(arguments: list[str], number: signal.Signals, tmp_path: Path) -> None:
    script = f'{tmp_path}/parent.py'
    with open(script, 'w') as file:
        file.write(arguments[0])
    with heeded(signal.SIGINT):
        started = subprocess.Popen([sys.executable, script, *arguments[1:]],
                                   stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    with started as parent:
        assert parent.stdout
        workers = {int(parent.stdout.readline()) for _ in range(2)}
        parent.send_signal(number)
        assert parent.wait(60)
    wait_for(lambda: not any(map(is_there, workers)))


@pytest.mark.parametrize('method', ['fork', 'spawn', 'forkserver'])
@pytest.mark.parametrize('wait', [0.0, 0.3])
def test_nobody_complains_when_all_are_interrupted(
        method: str, wait: float, tmp_path: Path) -> None:
    """As a terminal does; also processes that are only starting."""
    script = tmp_path / 'hasty.py'
    script.write_text(HASTY)
    with heeded(signal.SIGINT):
        started = subprocess.Popen([sys.executable, script, method], stdout=subprocess.PIPE,
                                   stderr=subprocess.PIPE, text=True, start_new_session=True)
    with started as parent:
        assert parent.stdout and parent.stdout.readline() == 'starting\n'
        time.sleep(wait)
        os.killpg(parent.pid, signal.SIGINT)
        try:
            assert parent.communicate(timeout=60)[1] == ''
        finally:
            parent.kill()
        assert parent.returncode == 3


def test_it_ends_wherever_it_is_interrupted(tmp_path: Path) -> None:
    script = tmp_path / 'interrupted.py'
    script.write_text(INTERRUPTED)
    with subprocess.Popen([sys.executable, script, 'fork'], stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE, text=True, start_new_session=True) as all_steps:
        try:
            output, errors = all_steps.communicate(timeout=120)
        finally:
            with suppress(ProcessLookupError):
                os.killpg(all_steps.pid, signal.SIGKILL)
    assert errors == '' and 50 < int(output) < 999


def test_an_error_is_not_kept_waiting_by_others() -> None:
    with pytest.raises(ZeroDivisionError), worker_pool(2) as pool:
        pool.map(time.sleep, [600])
        raise ZeroDivisionError


def test_nobody_waits_for_what_nobody_took() -> None:
    with worker_pool(2) as pool:
        pool.map(time.sleep, [600, 0])


def test_results_come_back() -> None:
    with worker_pool(2) as pool:
        assert list(pool.map(divmod, range(9), [2] * 9)) == [divmod(i, 2) for i in range(9)]
        assert next(pool.map(os.path.realpath, ['/proc/self'])) != os.path.realpath('/proc/self')


def test_results_of_several_askings_are_not_mixed() -> None:
    with worker_pool(2) as pool:
        once, again = pool.map(abs, [-1, -2, -3]), pool.map(abs, [-4, -5, -6])
        pool.map(abs, [-7])  # nobody takes them
        assert sorted(pool.completed(abs, [-8, -9])) == [8, 9]
        assert list(zip(once, again)) == [(1, 4), (2, 5), (3, 6)]


def test_results_come_as_they_are_ready() -> None:
    with worker_pool(2) as pool:
        results = pool.completed(max, [range(10**8), range(2)])  # seconds, and none
        assert [next(results), next(results)] == [1, 10**8 - 1]


def test_what_a_function_raises_is_raised_with_its_place() -> None:
    with pytest.raises(FileNotFoundError, match='/nowhere') as caught, worker_pool(2) as pool:
        list(pool.map(os.stat, ['/', '/nowhere', '/']))
    assert 'function(*arguments)' in str(caught.value.__cause__)


class Obstinate(Exception):
    """An error that cannot be loaded again."""

    def __init__(self, one: str, other: str) -> None:
        super().__init__(one + other)


def obstinate(_: int) -> None:
    raise Obstinate('not ', 'loaded')


def test_an_error_that_does_not_travel_is_reported() -> None:
    with pytest.raises(RuntimeError, match='not loaded'), worker_pool(1, 'fork') as pool:
        list(pool.map(obstinate, [0]))


@pytest.mark.parametrize('method', ['fork', 'spawn', 'forkserver'])
def test_the_end_of_a_process_is_an_error(method: str) -> None:
    with pytest.raises(ChildProcessError), worker_pool(2, method) as pool:
        list(pool.map(os._exit, [1]))
