# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""Processes that compute end with the one that they compute for, however that ends."""
from __future__ import annotations

import os
from pathlib import Path
import signal
import subprocess
import sys
import time

from dispositions import heeded
import pytest

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
    end = time.monotonic() + 60
    while any(map(is_there, workers)):
        assert time.monotonic() < end
        time.sleep(0.05)


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


def test_an_error_is_not_kept_waiting_by_others() -> None:
    with pytest.raises(ZeroDivisionError), worker_pool(2) as pool:
        pool.submit(time.sleep, 600)
        raise ZeroDivisionError


def test_results_come_back() -> None:
    with worker_pool(2) as pool:
        assert list(pool.map(abs, [-1, -2])) == [1, 2]
        assert pool.submit(os.getpid).result() != os.getpid()
