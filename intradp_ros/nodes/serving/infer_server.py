# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""The service ``~/infer`` of a gateway: many requests at a time, none of which holds a thread."""
from __future__ import annotations

from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
import threading
import time
from typing import Any

from rclpy.node import Node
from rclpy.qos import QoSProfile

from intradp_ros.core.shared_key import SharedKey
from intradp_ros.nodes.serving.infer_messages import (
    answer_message,
    InferMessageError,
    late_if_over,
    request_of,
    RequestSeals,
    SealError,
)
from intradp_ros.runtime.requests.infer_requests import CLOSING, InferEnd, InferFate
from intradp_ros.srv import Infer
from intradp_ros.systems.serving.gateway import Gateway
from intradp_ros.wire.rejections import Rejections

NAME = 'infer'
#: Requests that have no answer yet, and bytes of their tensors; requests that DDS keeps.
MAX_OPEN, MAX_OPEN_BYTES = 256, 256 << 20
QOS = QoSProfile(depth=64)
#: Threads that send answers.
SENDERS = 4


@dataclass(frozen=True)
class _Open:
    """A request without an answer, since when, and the bytes of its tensors."""

    request: Infer.Request
    header: Any
    came: float
    size: int


class InferServer:
    """
    Serves requests until it is closed.

    rclpy answers when a callback returns, and a callback that waits holds a thread.  So the
    callback returns the request, and what rclpy then calls to send an answer takes it; the answer
    is sent when there is one.  Messages become requests on one thread, in order, and ends become
    messages on others, of which a client that left holds one up for a tenth of a second: the
    node's own thread and the gateway's only hand them over.
    """

    def __init__(self, node: Node, gateway: Gateway, key: SharedKey | None, highest: int,
                 warn: Callable[[str], None]) -> None:
        self._gateway, self._highest, self._warn = gateway, highest, warn
        self._node, self._seals = node, RequestSeals(key)
        self._rejections = Rejections()
        self._lock = threading.Lock()
        self._open: dict[int, _Open] = {}
        self._bytes = self._count = 0
        self._closed = False
        self._takes = ThreadPoolExecutor(1, f'{NAME}-requests')
        self._answers = ThreadPoolExecutor(SENDERS, f'{NAME}-answers')
        self._service: Any = node.create_service(
            Infer, f'~/{NAME}', lambda request, _: request, qos_profile=QOS)
        self._send = self._service.send_response
        self._service.send_response = self._came  # type: ignore[method-assign, assignment]

    @property
    def rejected(self) -> Mapping[str, int]:
        """Return how many requests were not taken, by cause."""
        return self._rejections.by_cause()

    @property
    def waiting(self) -> int:
        """Return how many requests have no answer yet."""
        return len(self._open)

    def close(self) -> None:
        """Refuse what has no answer yet, so that it is asked elsewhere, and take no more."""
        with self._lock:
            self._closed = True
            numbers = list(self._open)
        self._takes.shutdown(cancel_futures=True)
        for number in numbers:
            self._answers.submit(self._answer, number, self._refusal(CLOSING))
        self._answers.shutdown()
        self._node.destroy_service(self._service)

    def _came(self, request: Infer.Request, header: Any) -> None:
        """Take a request, on the node's thread."""
        size = sum(len(tensor.data) for tensor in request.inputs)
        with self._lock:
            if self._closed:
                return
            self._count += 1
            number, room = self._count, len(self._open) < MAX_OPEN and (
                self._bytes + size <= MAX_OPEN_BYTES)
            self._open[number] = _Open(request, header, time.monotonic(), size)
            self._bytes += size
        if room:
            self._takes.submit(self._take, number, self._open[number])
        else:
            self._reject('full', f'{MAX_OPEN} requests, or {MAX_OPEN_BYTES >> 20} MB of them, '
                         'have no answer yet')
            self._heard(number, self._refusal('too many requests are open'), own=False)

    def _take(self, number: int, it: _Open) -> None:
        """Give a request to the gateway, on the thread of requests."""
        request, heard = it.request, partial(self._heard, number)
        try:
            if not request.inputs:
                heard(self._description(request.service), own=not len(request.mac))
                return
            self._seals.check(request)
            if request.priority > self._highest:
                raise InferMessageError(f'priority {request.priority}: at most {self._highest} '
                                        'is taken here (parameter highest_priority)')
            self._gateway.submit(request_of(request, time.monotonic() - it.came), heard)
        except SealError as error:  # with the right seal it comes to nobody but its sender
            self._reject(error.cause, str(error))
            heard(self._refusal(str(error)), own=error.cause == 'challenge')
        except InferMessageError as error:
            self._reject('request', str(error))
            heard(self._refusal(str(error)))
        except Exception as error:  # one request must not take the others their answers
            self._reject('handler', f'{type(error).__name__}: {error}')
            heard(self._refusal('the gateway failed'))

    def _heard(self, number: int, end: InferEnd, own: bool = True) -> None:
        with self._lock:
            if not self._closed:
                self._answers.submit(self._answer, number, end, own)

    def _answer(self, number: int, end: InferEnd, own: bool = True) -> None:
        """Send an answer, on the thread of answers."""
        with self._lock:
            it = self._open.pop(number, None)
            if it is None:
                return
            self._bytes -= it.size
        found = self._gateway.specs(it.request.service)
        asked = (found.inputs, found.outputs) if found and not it.request.inputs else ((), ())
        end = late_if_over(end, time.monotonic() > it.came + it.request.remaining)
        try:
            self._send(self._seals.sealed(answer_message(end, asked), it.request, own),
                       it.header)
        except Exception as error:  # of one client, whatever the middleware raises
            self._reject('answer', f'{type(error).__name__}: {error}')

    def _description(self, service: str) -> InferEnd:
        """Return the answer to a question what a service takes."""
        known = [each.name for each in self._gateway.services]
        return self._refusal(
            'no inputs: a question what the service takes' if service in known else
            f'service {service[:64]!r} is not served; there are {", ".join(known)}')

    def _refusal(self, reason: str) -> InferEnd:
        return InferEnd(InferFate.REFUSED, reason, site=self._gateway.site)

    def _reject(self, cause: str, text: str) -> None:
        if self._rejections.count(cause, time.monotonic()):
            self._warn(f'rejected ({cause}): {text}')
