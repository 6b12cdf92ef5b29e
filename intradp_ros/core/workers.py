# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""Processes that compute for this one and end with it, however it ends."""
from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
import multiprocessing
from multiprocessing.connection import Connection, wait
import os
import signal
import sys
import threading
import time
from typing import IO

#: Seconds in which a pool has dropped what nobody began.
_NOTICE = 0.2


@contextmanager
def worker_pool(count: int, method: str | None = None) -> Iterator[ProcessPoolExecutor]:
    """
    Provide processes, which have ended when the context is left.

    If it is left by an exception (Ctrl-C is one), what they compute is
    dropped.  They also end when this process is killed.  What they print is
    lost (see `claim_output`).  `method` is how they are started, as
    `multiprocessing` names it.
    """
    context = multiprocessing.get_context(method)
    reader, writer = context.Pipe(duplex=False)
    with reader, writer, ProcessPoolExecutor(count, context, _tie, (reader,)) as pool:
        try:
            with _no_interrupts():  # of which processes that are just starting would complain
                for _ in range(count):
                    pool.submit(os.getpid)
            yield pool
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            time.sleep(_NOTICE)  # else it trips over futures that were cancelled meanwhile
            writer.send(None)
            raise


@contextmanager
def _no_interrupts() -> Iterator[None]:
    """Keep Ctrl-C from this thread for a while, and for ever from processes that it starts."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _tie(reader: Connection) -> None:
    """End with the parent, or when it says so; print nothing."""
    threading.Thread(target=_end_early, args=(reader,), daemon=True).start()
    claim_output().close()


def _end_early(reader: Connection) -> None:
    parent = multiprocessing.parent_process()
    wait([reader] if parent is None else [reader, parent.sentinel])
    os._exit(1)  # nobody takes what is being computed


def claim_output() -> IO[str]:
    """
    Return standard output; what anybody else prints from now on is lost.

    The solver HiGHS prints a line now and then even when told to be silent.
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
