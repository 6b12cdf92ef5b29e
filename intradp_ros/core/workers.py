# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""Processes that compute for this one and end with it, however it ends."""
from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from multiprocessing import get_context, parent_process
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from multiprocessing.resource_tracker import ensure_running
import os
import pickle
import signal
import sys
import threading
import time
import traceback
from typing import Any, IO, TypeVar

from intradp_ros.core.child_end import ChildWatch

T = TypeVar('T')


class WorkerPool:
    """
    Processes that compute what `map` and `completed` are called with.

    It has no threads and no locks, unlike `ProcessPoolExecutor`, which Ctrl-C in the midst of
    `submit` or `result` leaves with a lock that nobody will ever release: leaving it, and then the
    interpreter, waits for ever.  For one thread only.
    """

    def __init__(self, count: int, method: str | None) -> None:
        self._context: Any = get_context(method)  # typeshed lacks what all contexts share
        self._processes: list[BaseProcess] = []
        self._of: dict[Connection, BaseProcess] = {}
        self._idle: list[Connection] = []
        self._busy: list[Connection] = []
        self._waiting: deque[tuple[int, Callable[..., Any], tuple[Any, ...]]] = deque()
        self._arrived: dict[int, tuple[Any, BaseException | None, str]] = {}
        self._asked = 0
        self._count = count
        self._watch = ChildWatch()

    def start(self) -> None:
        """Start the processes, which never hear of Ctrl-C."""
        if self._context.get_start_method() != 'fork':
            ensure_running()  # now, as it lets Ctrl-C through again when it starts the tracker
        with _no_interrupts():  # of which processes that are just starting would complain
            self._start()

    def _start(self) -> None:
        for _ in range(self._count):
            ours, theirs = self._context.Pipe()
            process = self._context.Process(target=_work, args=(theirs,))
            self._processes.append(process)  # first: whatever comes between, it is killed
            process.start()
            theirs.close()
            self._of[ours] = process
            self._idle.append(ours)

    def map(self, function: Callable[..., T], *arguments: Iterable[Any]) -> Iterator[T]:
        """Return the results in the order of the arguments; raise what a function raised."""
        return (self._taken(number) for number in self._ask(function, arguments))

    def completed(self, function: Callable[..., T], *arguments: Iterable[Any]) -> Iterator[T]:
        """Return the results as they come; raise what a function raised."""
        missing = set(self._ask(function, arguments))
        return (self._taken(self._next_of(missing)) for _ in range(len(missing)))

    def end(self) -> None:
        """Wait until the processes have ended; what nobody took is dropped."""
        if self._busy:
            self.kill()
        for connection in self._idle:
            with suppress(ConnectionError):  # one that has ended already
                connection.send(None)
        self._close()

    def kill(self) -> None:
        """End the processes at once."""
        for process in self._processes:
            if process.pid is not None:
                process.kill()
        self._close()

    def _close(self) -> None:
        for process in self._processes:
            if process.pid is not None:
                process.join()
        self._processes, self._idle, self._busy, self._of = [], [], [], {}

    def _ask(self, function: Callable[..., Any], arguments: tuple[Iterable[Any], ...],
             ) -> list[int]:
        first = self._asked
        for values in zip(*arguments):
            self._waiting.append((self._asked, function, values))
            self._asked += 1
        self._hand_out()
        return list(range(first, self._asked))

    def _hand_out(self) -> None:
        while self._waiting and self._idle:
            self._idle[-1].send(self._waiting.popleft())
            self._busy.append(self._idle.pop())

    def _next_of(self, missing: set[int]) -> int:
        """Wait for one of several results and strike it off."""
        while not (there := missing & self._arrived.keys()):
            self._receive()
        number = min(there)
        missing.remove(number)
        return number

    def _taken(self, number: int) -> Any:
        while number not in self._arrived:
            self._receive()
        result, error, trace = self._arrived.pop(number)
        if error is not None:
            raise error from _RemoteError(trace)
        return result

    def _receive(self) -> None:
        for connection in wait(self._busy):
            assert isinstance(connection, Connection)
            try:
                number, *outcome = pickle.loads(connection.recv_bytes())
            except (EOFError, ConnectionError) as error:
                process = self._of[connection]
                process.join()
                raise ChildProcessError('a process that computed '
                                        f'{self._watch.end(process.exitcode or 0)}') from error
            self._arrived[number] = tuple(outcome)
            self._busy.remove(connection)
            self._idle.append(connection)
        self._hand_out()


class _RemoteError(Exception):
    """Where in another process an exception was raised."""

    def __str__(self) -> str:
        return f'\n{self.args[0]}'


@contextmanager
def worker_pool(count: int, method: str | None = None) -> Iterator[WorkerPool]:
    """
    Provide processes, which have ended when the context is left.

    If it is left by an exception (Ctrl-C is one), what they compute is
    dropped.  They also end when this process is killed.  What they print is
    lost (see `claim_output`).  `method` is how they are started, as
    `multiprocessing` names it.
    """
    pool = WorkerPool(count, method)
    try:
        pool.start()
        yield pool
    except BaseException:
        pool.kill()
        raise
    pool.end()


@contextmanager
def _no_interrupts() -> Iterator[None]:
    """Keep Ctrl-C from this thread for a while, and for ever from processes that it starts."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _work(connection: Connection) -> None:
    """Compute what comes until None does; end with the parent, and print nothing."""
    threading.Thread(target=_end_with_parent, daemon=True).start()
    claim_output().close()
    while task := _next_task(connection):
        number, function, arguments = task
        connection.send_bytes(_outcome(number, function, arguments))


def _next_task(connection: Connection) -> Any:
    try:
        return connection.recv()
    except (EOFError, ConnectionError):
        return None


def _outcome(number: int, function: Callable[..., Any], arguments: tuple[Any, ...]) -> bytes:
    """Return the result of a function or what it raised, pickled."""
    try:
        return pickle.dumps((number, function(*arguments), None, ''))
    except BaseException as error:
        trace = traceback.format_exc()
        try:
            pickled = pickle.dumps((number, None, error, trace))
            pickle.loads(pickled)
        except Exception:  # errors of some libraries cannot be pickled, or not be loaded again
            return pickle.dumps((number, None, RuntimeError(repr(error)), trace))
        return pickled


def _end_with_parent() -> None:
    parent = parent_process()
    assert parent is not None
    parent.join()
    os._exit(1)  # nobody takes what is being computed


def claim_output() -> IO[str]:
    """
    Return standard output; what anybody else prints from now on is lost.

    The solver HiGHS prints a line now and then even when silenced.
    """
    sys.stdout.flush()
    output = os.fdopen(os.dup(1), 'w')
    with open(os.devnull, 'w') as nowhere:
        os.dup2(nowhere.fileno(), 1)
    return output


def end_with(parent: int) -> None:
    """End this process, a child of `parent`, within a second after that one."""
    threading.Thread(target=_outlive, args=(parent,), daemon=True).start()


def _outlive(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(0.5)
    os._exit(1)
