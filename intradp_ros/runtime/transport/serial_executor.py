# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""Work that ends in sending, in order, on a thread of its own: encoding, above all."""
from __future__ import annotations

from collections.abc import Callable
import queue
import threading

from intradp_ros.core.steady import Steady

Work = Callable[[], None]


class SerialExecutor:
    """
    Runs what is put into it, one after another.

    The thread begins with the first work: a side that encodes nothing has
    none.  Work that fails is logged.
    """

    def __init__(self, name: str) -> None:
        self._work: queue.SimpleQueue[Work | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._starting, self._steady = threading.Lock(), Steady(name)

    def put(self, work: Work) -> None:
        """Run this after what was put in before."""
        self._work.put(work)
        with self._starting:
            if not self._thread.ident:
                self._steady.do(self._thread.start, None)  # else with the next work

    def close(self) -> None:
        """End the thread after what was put in before."""
        self._work.put(None)

    def _run(self) -> None:
        while (work := self._work.get()) is not None:
            self._steady.do(work, None)
