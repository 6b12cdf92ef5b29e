# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""What is to be done in order, and without the lock under which it was decided."""
from __future__ import annotations

from collections import deque
from collections.abc import Callable
import logging
import threading
from typing import Generic, TypeVar

_LOG = logging.getLogger(__name__)
T = TypeVar('T')


class Outbox(Generic[T]):
    """
    Hands what is put into it to `do`, in order, one thread at a time.

    Who decides may hold a lock while it puts something; `drain` is called without one, by any
    thread.  What `do` calls may put more, and drain: that is done next, by the thread that drains
    already.  What `do` raises is logged: others go on.
    """

    def __init__(self, do: Callable[[T], object]) -> None:
        self._do, self._lock = do, threading.Lock()
        self._waiting: deque[T] = deque()
        self._draining = False

    @property
    def idle(self) -> bool:
        """Return whether nothing waits or is being done."""
        with self._lock:
            return not self._waiting and not self._draining

    def put(self, *things: T) -> None:
        """Let things be done by the next thread that drains."""
        with self._lock:
            self._waiting.extend(things)

    def drain(self) -> None:
        """Do what waits, unless another thread is at it."""
        while True:
            with self._lock:
                if self._draining or not self._waiting:
                    return
                self._draining = True
                things = list(self._waiting)
                self._waiting.clear()
            for thing in things:
                try:
                    self._do(thing)
                except Exception:  # of one of them
                    _LOG.exception('what was to be done next failed')
            with self._lock:
                self._draining = False
