# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""A thread that works on the newest things, as a camera driver hands over frames."""
from __future__ import annotations

from collections import deque
from collections.abc import Callable
from functools import partial
import threading
from typing import Generic, TypeVar

from intradp_ros.core.steady import Steady

Item = TypeVar('Item')


class Worker(Generic[Item]):
    """
    Calls `work` with one item after another, on a thread of its own.

    At most `size` items wait; the oldest makes room for a new one and is
    counted in `dropped`.  What `work` raises goes to `failed`.
    """

    def __init__(self, work: Callable[[Item], None], failed: Callable[[Exception], None],
                 size: int, name: str = 'worker') -> None:
        self.dropped = 0
        self._work, self._failed, self._size = work, failed, size
        self._waiting: deque[Item] = deque()
        self._closed = False
        self._changed = threading.Condition()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def put(self, item: Item) -> None:
        """Let an item wait for its turn; dropped once closed."""
        with self._changed:
            self._waiting.append(item)
            while len(self._waiting) > (0 if self._closed else self._size):
                self._waiting.popleft()
                self.dropped += 1
            self._changed.notify()

    def stop(self) -> None:
        """Drop those that wait, and stop after the item at hand."""
        with self._changed:
            self._closed = True
            self.dropped += len(self._waiting)
            self._waiting.clear()
            self._changed.notify()

    def close(self) -> None:
        """Stop, and wait until the item at hand is finished."""
        self.stop()
        self._thread.join()

    def _next(self) -> Item | None:
        with self._changed:
            self._changed.wait_for(lambda: self._waiting or self._closed)
            return self._waiting.popleft() if self._waiting else None

    def _run(self) -> None:
        steady = Steady(self._thread.name)
        while (item := self._next()) is not None:
            try:
                self._work(item)
            except Exception as error:  # noqa: BLE001 - one bad item must not end the thread
                steady.do(partial(self._failed, error), None)
