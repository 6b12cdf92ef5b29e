# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""A client of a service whose requests and answers are sealed where there is a key."""
from __future__ import annotations

from collections.abc import Callable
from copy import copy
import math
import time
from typing import Any

from rclpy.executors import SingleThreadedExecutor
from rclpy.node import Node

from intradp_ros.core.shared_key import SharedKey
from intradp_ros.nodes.common.call_seals import check_answer, question_of, seal_request, SealError
from intradp_ros.nodes.common.checked_calls import CheckedCalls

#: Seconds after which a question for a challenge is asked again, or `say` hears that no node
#: serves the name so far; between two looks for the node.
AGAIN, LOOK = 2.0, 0.1


class SealedCaller:
    """Calls the service `name`; `executor` is that of its node, and spins while a call waits."""

    def __init__(self, node: Node, executor: SingleThreadedExecutor, kind: Any, name: str,
                 key: SharedKey | None, say: Callable[[str], None] | None = None) -> None:
        self._calls = CheckedCalls(node.create_client(kind, name))
        self._executor, self._kind, self._key = executor, kind, key
        self._others, self._say = '', say

    def call(self, request: Any, seconds: float) -> Any:
        """
        Return the answer; with a key the one that it seals.

        :raises ValueError: if none comes within so many seconds.
        """
        end = time.monotonic() + seconds
        if self._key is not None:
            request = seal_request(self._key, copy(request), self.challenge(seconds))
        if (answer := self._answered(request, end)) is None:
            raise self._silence(seconds)
        return answer

    def challenge(self, seconds: float) -> int:
        """
        Return what goals and requests are to be sealed with now, 0 without a key.

        :raises ValueError: if no answer that our key seals comes within so many seconds.
        """
        end = time.monotonic() + seconds
        while self._key is not None:
            answer = self._answered(question_of(self._kind.Request), end, AGAIN)
            if answer is not None:
                return int(answer.challenge)
            if time.monotonic() > end:
                raise self._silence(seconds)
        return 0

    def _answered(self, request: Any, end: float, again: float = math.inf) -> Any:
        """Return the answer to a request; None if none comes until `end`, or within `again`."""
        client, begun = self._calls.client, time.monotonic()
        while not client.service_is_ready() and (now := time.monotonic()) < end:
            if self._say and now > begun + AGAIN:
                self._say(f'{client.srv_name}: no node serves it so far: waiting for one, '
                          f'{end - now:.0f} s more')
                self._say = None
            self._executor.spin_once(timeout_sec=LOOK)
        future = self._calls.call(request, lambda answer: self._is_ours(answer, request))
        self._executor.spin_until_future_complete(
            future, max(LOOK, min(end - time.monotonic(), again)))
        if future.done():
            return future.result()
        client.remove_pending_request(future)
        return None

    def _is_ours(self, answer: Any, request: Any) -> bool:
        try:
            if self._key is not None:
                check_answer(self._key, answer, request)
        except SealError as error:
            self._others = (f'{error}: give the node the same key_file; or another process serves '
                            'this name, too')
            return False
        return True

    def _silence(self, seconds: float) -> ValueError:
        client = self._calls.client
        return ValueError(f'{client.srv_name}: ' + (self._others or (
            f'no answer within {seconds:g} s' if client.service_is_ready() else
            'no node serves it: start one, or name it')))
