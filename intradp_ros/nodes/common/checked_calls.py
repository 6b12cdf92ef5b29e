# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""
Calls of a service that end with the first answer that is admitted.

Any process may serve a name that another one serves, and all of them hear each request.  rclpy
takes whoever answers first, and drops the rest.
"""
from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
import threading
from typing import Any
from weakref import WeakKeyDictionary

from rclpy.client import Client
from rclpy.task import Future

Admits = Callable[[Any], bool]


@dataclass(frozen=True)
class _Awaited:
    """A future, as the executor uses it, that only an answer which is admitted ends."""

    future: Future[Any]
    admits: Admits

    def _set_executor(self, executor: Any) -> None:
        self.future._set_executor(executor)

    def set_result(self, answer: Any) -> None:
        if self.admits(answer):
            self.future.set_result(answer)


class CheckedCalls:
    """Calls by one client; `admits` is asked about each answer, on the executor's thread."""

    def __init__(self, client: Client[Any, Any]) -> None:
        self.client = client
        self._admits: WeakKeyDictionary[Future[Any], Admits] = WeakKeyDictionary()
        self._lock = threading.Lock()
        self._pending = client.get_pending_request
        client.get_pending_request = self._awaited  # type: ignore[method-assign, assignment]

    def call(self, request: Any, admits: Admits) -> Future[Any]:
        """Send a request."""
        with self._lock:  # the answer may come at once
            future = self.client.call_async(request)
            self._admits[future] = admits
        return future

    def _awaited(self, number: int) -> _Awaited:
        with self._lock:
            future = self._pending(number)
            return _Awaited(future, self._admits[future])
