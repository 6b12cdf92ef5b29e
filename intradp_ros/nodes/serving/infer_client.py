# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""A robot's client of gateway nodes: one end for each request, also while it changes gateways."""
from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from functools import partial
import secrets
import threading
import time
from typing import Any

from rclpy.node import Node

from intradp_ros.core.shared_key import SharedKey
from intradp_ros.dds.dds_channel import check_server_name
from intradp_ros.nodes.common.checked_calls import CheckedCalls
from intradp_ros.nodes.serving.infer_messages import (
    check_answer,
    end_of,
    InferMessageError,
    request_message,
    sealed_request,
    SealError,
    specs_of,
)
from intradp_ros.nodes.serving.infer_server import NAME, QOS
from intradp_ros.runtime.requests.infer_requests import CLOSING, InferFate, InferRequest
from intradp_ros.runtime.requests.outbox import Outbox
from intradp_ros.runtime.requests.roaming import (
    Ask,
    Heard,
    Ping,
    Roaming,
    Tell,
    Todo,
)
from intradp_ros.srv import Infer
from intradp_ros.systems.serving.service import TensorSpec
from intradp_ros.wire.rejections import Rejections

#: Seconds after which an answer is not waited for: rclpy itself waits for ever.
FORGET = 30.0
Specs = tuple[tuple[TensorSpec, ...], tuple[TensorSpec, ...]]


class InferClient:
    """
    Asks a service of the first of some gateway nodes that answers; see `InferService`.

    Its node's executor must spin, and `look` be called several times in `silence` seconds.  Ends
    are heard on the thread of who calls, or on the executor's.
    """

    def __init__(self, node: Node, service: str, gateways: Sequence[str], key: SharedKey | None,
                 silence: float, warn: Callable[[str], None]) -> None:
        self._node, self._service, self._key, self._warn = node, service, key, warn
        self._calls: dict[str, CheckedCalls] = {}
        self._awaited: deque[tuple[float, CheckedCalls, Any]] = deque()
        self._challenges: dict[str, int] = {}
        self._roaming = Roaming(secrets.token_hex(8), silence)
        self._lock, self._rejections = threading.Lock(), Rejections()
        self._outbox = Outbox[Todo](self._do)
        #: What the service takes and gives, once a gateway has said so; and why none does.
        self.specs: Specs | None = None
        self.trouble = ''
        self.move(gateways)

    @property
    def gateway(self) -> str:
        """Return the gateway that is asked, '' for none."""
        return self._roaming.gateway

    @property
    def counts(self) -> Mapping[str, int]:
        """Return what became of answers and gateways, in numbers."""
        return {'late_answers': self._roaming.late, 'asked_again': self._roaming.again,
                'changes_of_gateway': self._roaming.changes}

    @property
    def rejected(self) -> Mapping[str, int]:
        """Return how many answers were not taken, by cause."""
        return self._rejections.by_cause()

    def submit(self, request: InferRequest, heard: Heard) -> Callable[[], None]:
        """Send a request."""
        with self._lock:
            number, todo = self._roaming.submit(request, heard, time.monotonic())
            self._outbox.put(*todo)
        self._outbox.drain()

        def withdraw() -> None:
            with self._lock:
                self._outbox.put(*self._roaming.withdraw(number, time.monotonic()))
            self._outbox.drain()
        return withdraw

    def move(self, gateways: Sequence[str]) -> None:
        """
        Ask other gateways from now on; what is in flight is answered by those before.

        :raises ValueError: if they cannot be names of nodes, or are too many.
        """
        for name in gateways:
            check_server_name(name)
        with self._lock:
            todo = self._roaming.move(gateways, time.monotonic())
            known = self._roaming.known
            for name in known - self._calls.keys():
                self._calls[name] = CheckedCalls(self._node.create_client(
                    Infer, f'{name}/{NAME}', qos_profile=QOS))
            for name in self._calls.keys() - known:
                self._challenges.pop(name, None)
                self._node.destroy_client(self._calls.pop(name).client)
            self._outbox.put(*todo)
        self._outbox.drain()

    def look(self) -> None:
        """Do what time brings."""
        now = time.monotonic()
        with self._lock:
            self._outbox.put(*self._roaming.look(now))
            while self._awaited and now - self._awaited[0][0] > FORGET:
                _, calls, future = self._awaited.popleft()
                calls.client.remove_pending_request(future)
        self._outbox.drain()

    def close(self) -> None:
        """Ask no more; what is in flight ends as cancelled."""
        with self._lock:
            self._outbox.put(*self._roaming.end_all(time.monotonic()))
        self._outbox.drain()
        for calls in self._calls.values():
            self._node.destroy_client(calls.client)

    def _do(self, todo: Todo) -> None:
        try:
            if isinstance(todo, Tell):
                todo.heard(todo.end)
            elif isinstance(todo, Ping):
                self._ask(todo.gateway, Infer.Request(
                    service=self._service, number=secrets.randbits(63)), None)
            else:
                self._ask(todo.gateway, request_message(todo.request), todo)
        except Exception as error:  # of one request, whatever it is: the others go on
            self._reject('failed', f'{type(error).__name__}: {error}')

    def _ask(self, gateway: str, message: Infer.Request, ask: Ask | None) -> None:
        calls = self._calls[gateway]
        if not calls.client.service_is_ready():
            with self._lock:
                self._outbox.put(*self._roaming.gone(gateway, time.monotonic()))
            return
        if ask is not None:
            sealed_request(self._key, message, self._challenges.get(gateway, 0))
        future = calls.call(message, partial(self._admits, message))
        with self._lock:
            self._awaited.append((time.monotonic(), calls, future))
        future.add_done_callback(
            lambda done: self._answered(gateway, message, ask, done.result()))

    def _admits(self, message: Infer.Request, answer: Infer.Response) -> bool:
        """Return whether an answer is of who has the key; others do not end the request."""
        try:
            check_answer(self._key, answer, message)
        except SealError as error:
            self._reject(error.cause, str(error))
            return False
        return True

    def _answered(self, gateway: str, message: Infer.Request, ask: Ask | None,
                  answer: Infer.Response) -> None:
        """Take an answer, on the executor's thread."""
        try:
            end = end_of(answer)
            now, leaving = time.monotonic(), end.reason == CLOSING
            self._challenges[gateway] = answer.challenge
            if ask is None and not leaving:
                self._take_specs(answer)
            with self._lock:
                if ask is not None and self._key and end.fate is InferFate.REFUSED and (
                        answer.challenge != message.challenge):
                    todo = self._roaming.repeat(ask.number, now)
                elif ask is not None:
                    todo = self._roaming.answered(gateway, ask.number, end, now, leaving)
                else:
                    todo = (self._roaming.gone if leaving else self._roaming.alive)(gateway, now)
                self._outbox.put(*todo)
        except InferMessageError as error:
            self._reject('answer', str(error))
        self._outbox.drain()

    def _take_specs(self, answer: Infer.Response) -> None:
        found = specs_of(answer.takes), specs_of(answer.gives)
        self.trouble = '' if found[0] else answer.reason if 'not served' in answer.reason else (
            f'{self._service} is being loaded')
        if found[0]:
            self.specs = found

    def _reject(self, cause: str, text: str) -> None:
        if self._rejections.count(cause, time.monotonic()):
            self._warn(f'rejected ({cause}): {text}')
