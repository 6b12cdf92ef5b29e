# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""
Planning in a process of its own, so that inferences are not disturbed.

Run as a module it reads a request and a folder as JSON from standard input
and writes the book to standard output.  It ends with its parent.  A plain
child process, because a forked copy of a process with DDS threads can hang,
and a spawned one would run the user's own main module again.
"""
from __future__ import annotations

import atexit
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import asdict
import json
import os
from pathlib import Path
import resource
import signal
import subprocess
import sys
import tempfile
import time
from typing import IO

from intradp_ros.core.child_end import ChildWatch
from intradp_ros.core.workers import claim_output, end_with
from intradp_ros.profiling.machine import available_cores
from intradp_ros.systems.sharing.book.book import ScheduleBook
from intradp_ros.systems.sharing.book.plan_from_profiles import book_from_profiles, PlanRequest

#: Part of a core's time that planning takes while inferences go on by another book.
SHARE = 0.1
#: Seconds of a processor after which it rests.
_STRETCH = 0.02
#: Seconds of a processor, and bytes of data, that each process of a job may take.  Real models
#: need a few minutes and 1 GB at most; one that a stranger invented would keep a planner for days.
MAX_SECONDS, MAX_BYTES = 1800, 6 << 30


class PlanningError(RuntimeError):
    """Planning failed; the text is what the planning process said last."""


class PlanProcess:
    """
    One planning job in flight.

    With a `former` book inferences go on by that one meanwhile, and the job
    may take its time: it has one process, of `SHARE` of a core.
    """

    def __init__(self, request: PlanRequest, folder: Path | None = None, *,
                 former: ScheduleBook | None = None) -> None:
        job = {'request': asdict(request), 'folder': str(folder) if folder else None,
               'former': former.to_json() if former else None, 'parent': os.getpid()}
        self._input, self._output, self._errors = _scratch_files(3)
        json.dump(job, self._input)
        self._input.seek(0)
        self._watch = ChildWatch()
        self._child = subprocess.Popen(
            [sys.executable, '-m', __name__], stdin=self._input, stdout=self._output,
            stderr=self._errors, start_new_session=True)
        give_way(self._child.pid, former is not None)  # from here, for its imports take seconds

    def result(self) -> str | None:
        """
        Return the book as JSON text, None while it is being made.

        :raises PlanningError: if the process failed.
        """
        code = self._child.poll()
        if code is None:
            return None
        if code:
            raise PlanningError(self._read(self._errors).strip().rpartition('\n')[2]
                                or f'the planning process {self._watch.end(code)}')
        return self._read(self._output)

    def cancel(self) -> None:
        """Stop the job and its workers."""
        with suppress(ProcessLookupError):
            os.killpg(self._child.pid, signal.SIGKILL)
        self._child.wait()

    @staticmethod
    def _read(file: IO[str]) -> str:
        file.seek(0)
        return file.read()


def _scratch_files(count: int) -> list[IO[str]]:
    """Open files that vanish with the job (pipes would fill up while nobody reads)."""
    return [tempfile.TemporaryFile('w+') for _ in range(count)]  # noqa: SIM115


def give_way(pid: int, again: bool) -> None:
    """
    Let other processes run before one that has just begun to plan.

    The first book of a model must come even if inferences on the robot keep
    all processors busy, since it takes that load off.  Later ones only take
    what nobody else wants.
    """
    with suppress(ProcessLookupError):  # that was quick
        nice = os.getpriority(os.PRIO_PROCESS, pid)
        os.setpriority(os.PRIO_PROCESS, pid, max(nice, 19 if again else 10))
        if again:
            os.sched_setscheduler(pid, os.SCHED_BATCH, os.sched_param(0))


@contextmanager
def limited(share: float) -> Iterator[None]:
    """
    Compute for no more than `share` of the time of one core.

    Its main thread rests after every `_STRETCH` seconds of processor time: even
    on a core that is free, caches, memory and the core's other half are not.
    """
    def rest(*_: object) -> None:
        time.sleep(_STRETCH * (1 / share - 1))

    signal.signal(signal.SIGPROF, rest)
    signal.setitimer(signal.ITIMER_PROF, _STRETCH, _STRETCH)
    try:
        yield
    finally:  # else it would end the process that no longer takes it
        signal.setitimer(signal.ITIMER_PROF, 0.0)


def bound(seconds: int, data: int) -> None:
    """
    Let this process, and those that it starts, take no more than this of a processor and memory.

    Both end in an exception, and what does not heed it for ten seconds is killed.
    """
    def give_up(*_: object) -> None:
        raise PlanningError(f'planning takes more than {seconds} s of a processor')

    signal.signal(signal.SIGXCPU, give_up)
    # it comes again every second, and an interpreter that ends takes it no more
    atexit.register(signal.signal, signal.SIGXCPU, signal.SIG_IGN)
    for kind, most, grace in ((resource.RLIMIT_CPU, seconds, 10), (resource.RLIMIT_DATA, data, 0)):
        _, allowed = resource.getrlimit(kind)
        hard = most + grace if allowed == resource.RLIM_INFINITY else min(most + grace, allowed)
        resource.setrlimit(kind, (min(most, hard), hard))


def main() -> None:
    """Make the book that standard input asks for."""
    job = json.load(sys.stdin)
    end_with(job['parent'])
    bound(MAX_SECONDS, MAX_BYTES)
    folder = Path(job['folder']) if job['folder'] else None
    former = ScheduleBook.from_json(job['former']) if job['former'] else None
    with claim_output() as output, limited(SHARE) if former else nullcontext():
        output.write(book_from_profiles(
            PlanRequest(**job['request']), folder, former=former,
            workers=1 if former else available_cores()))


if __name__ == '__main__':
    main()
