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
import threading
import time


@contextmanager
def worker_pool(count: int, method: str | None = None) -> Iterator[ProcessPoolExecutor]:
    """
    Provide processes, which have ended when the context is left.

    If it is left by an exception (Ctrl-C is one), what they compute is
    dropped.  They also end when this process is killed.  `method` is how they
    are started, as `multiprocessing` names it.
    """
    context = multiprocessing.get_context(method)
    reader, writer = context.Pipe(duplex=False)
    with reader, writer, ProcessPoolExecutor(count, context, _tie, (reader,)) as pool:
        try:
            yield pool
        except BaseException:
            writer.send(None)
            raise


def _tie(reader: Connection) -> None:
    """Leave Ctrl-C to the parent, and end with it or when it says so."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_early, args=(reader,), daemon=True).start()


def _end_early(reader: Connection) -> None:
    parent = multiprocessing.parent_process()
    wait([reader] if parent is None else [reader, parent.sentinel])
    os._exit(1)  # nobody takes what is being computed


def end_with(parent: int) -> None:
    """End this process, a child of `parent`, within a second after that one."""
    threading.Thread(target=_outlive, args=(parent,), daemon=True).start()


def _outlive(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(0.5)
    os._exit(1)
