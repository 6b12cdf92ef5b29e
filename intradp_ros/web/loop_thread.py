# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""An event loop on a thread of its own, for what must not hold up the threads that use it."""
from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from concurrent.futures import Future, wait
import threading
from typing import Any, TypeVar

_T = TypeVar('_T')


class LoopThread:
    """Runs a loop from when it is made until `close`; safe to call from other threads."""

    def __init__(self, name: str) -> None:
        self._loop = asyncio.new_event_loop()
        self._lock, self._closed = threading.Lock(), False
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def call(self, function: Callable[..., object], *given: Any) -> bool:
        """Have a function called on the loop; return False if the loop is closed instead."""
        with self._lock:
            if not self._closed:
                self._loop.call_soon_threadsafe(function, *given)
            return not self._closed

    def begin(self, work: Coroutine[Any, Any, _T]) -> Future[_T]:
        """
        Begin a task and return its future, which has to be kept; closing cancels the task.

        :raises RuntimeError: if the loop is closed.
        """
        with self._lock:
            if self._closed:
                work.close()
                raise RuntimeError('the loop is closed')
            return asyncio.run_coroutine_threadsafe(work, self._loop)

    def run(self, work: Coroutine[Any, Any, _T], seconds: float | None = None) -> _T:
        """
        Return the result of a task.

        :raises TimeoutError: if it takes longer, and goes on.
        :raises RuntimeError: if the loop is closed.
        """
        future = self.begin(work)
        if not wait([future], seconds).done:
            raise TimeoutError('the task takes longer')
        return future.result()

    def close(self) -> None:
        """Cancel all tasks and end the thread; what was to be called has been called."""
        with self._lock:
            if not self._closed:
                self._closed = True
                self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.run_forever()
        for task in (tasks := asyncio.all_tasks(self._loop)):
            task.cancel()
        self._loop.run_until_complete(asyncio.gather(*tasks, return_exceptions=True))
        self._loop.close()
