# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""
Seals of what is asked of a node by services and actions, and of its answers.

ROS has no way to say who calls, but SROS2.  So where there is a key, a request carries a MAC over
all of its fields.  They include a challenge of the node's answers, which is good for a while, and
a number that was not used with it before: a recording is worth nothing.  The MAC of an answer
covers number, challenge and MAC of its request.  A type is sealed if its requests have `number`,
`challenge` and `mac`, and its answers `challenge` and `mac`.
"""
from __future__ import annotations

from array import array
from collections.abc import Callable, Iterator, Mapping
import math
import os
import struct
import threading
import time
from typing import Any

from rclpy.node import Node
from rclpy.qos import QoSProfile
from rclpy.service import Service

from intradp_ros.core.shared_key import is_mac, mac_of, SharedKey
from intradp_ros.wire.handshake import drawn
from intradp_ros.wire.sanitise import quoted

#: Seconds for which a challenge is good, requests that it is good for, bytes of a request.
GOOD, MOST_USES, MOST_BYTES = 30.0, 1024, 1 << 16
#: Requests that DDS keeps until they are looked at: one more takes the place of the oldest.
QOS = QoSProfile(depth=64)
SEALED = 'ask by intradp with its --key-file'
#: Counts a refusal by its cause, and logs it if that is worth a line.
Refuse = Callable[[str, str], None]


class SealError(ValueError):
    """A call that is not taken; `cause` counts it."""

    def __init__(self, cause: str, text: str) -> None:
        super().__init__(text)
        self.cause = cause


class CallSeals:
    """
    A node's check of who asks; safe from any thread.

    Without a key, or where `everybody` may, all is taken that has at most `most` bytes.  `fix`
    tells who is refused what to do.  Types without fields for a seal are refused with a key.
    """

    def __init__(self, key: SharedKey | None, refuse: Refuse, everybody: bool = False,
                 fix: str = SEALED, most: int = MOST_BYTES) -> None:
        self._key, self._everybody, self.refuse = key, everybody, refuse
        self._fix, self._most = fix, most
        self._lock = threading.Lock()
        self._used: dict[int, tuple[float, set[int]]] = {}

    @property
    def closed(self) -> bool:
        """Return whether strangers are refused."""
        return self._key is not None and not self._everybody

    def check(self, request: Any, name: str, now: float, free: bool = False) -> None:
        """
        Check who asks by a request to the service or action `name`; a `free` one needs no seal.

        A seal that is not good is taken off: what a stranger is answered, who repeats the request
        of another, is not an answer to that one.

        :raises SealError: if it is too large, or has to have a seal and has none that is good;
            what is only a question for a challenge has the cause ''.
        """
        if size_of(request, self._most) > self._most:
            if len(getattr(request, 'mac', b'')):
                request.mac = array('B')
            raise SealError('too_large', f'{name} takes requests of at most '
                            f'{self._most >> 10} kB')
        if self._key is None or self._everybody:
            return
        given = getattr(request, 'mac', b'')
        if free and not len(given):
            return
        if not len(given):
            question = bool(getattr(request, 'number', 0))
            raise SealError('' if question else 'unsealed', f'{name}: the request is not sealed '
                            f'with the key of this node: {self._fix}')
        if refusal := self._refusal(self._key, request, now):
            request.mac = array('B')
            raise SealError(refusal[0], f'{name}: {refusal[1]}')

    def _refusal(self, key: SharedKey, request: Any, now: float) -> tuple[str, str] | None:
        """Return why a seal is not good, or use it up."""
        with self._lock:
            since, used = self._used.get(request.challenge, (-math.inf, set[int]()))
            if now - since > GOOD or len(used) >= MOST_USES:
                return 'challenge', ('the request is sealed for another challenge: seal it with '
                                     'that of this answer')
            if not is_mac(request.mac, _request_mac(key, request)):
                return 'forged', 'the request is sealed with another key'
            if request.number in used:
                return 'replayed', 'this request came before'
            used.add(request.number)
        return None

    def sealed(self, answer: Any, request: Any) -> Any:
        """Return an answer with the challenge of the next request, and its seal."""
        if self._key is not None and hasattr(answer, 'mac'):
            answer.challenge = self._challenge(time.monotonic())
            answer.mac = array('B', _answer_mac(self._key, answer, request))
        return answer

    def _challenge(self, now: float) -> int:
        """Return a challenge that is good for a while; the one before stays good, too."""
        with self._lock:
            newest = next(reversed(self._used), 0)
            since, used = self._used.get(newest, (-math.inf, set[int]()))
            if now - since > GOOD / 2 or len(used) >= MOST_USES / 2:
                newest = drawn()
                self._used[newest] = now, set()
                for old in [*self._used][:-2]:
                    del self._used[old]
            return newest


def serve(node: Node, kind: Any, name: str, seals: CallSeals,
          answer: Callable[[Any], Any], refused: Callable[[str], Any],
          free: Callable[[Any], bool] = lambda request: False, **options: Any,
          ) -> Service[Any, Any]:
    """
    Serve `name`: `answer` makes a response of a request; what it raises refuses the request.

    `refused` makes the response that says why.  Requests for which `free` holds change nothing,
    and need no seal.
    """
    def called(request: Any, response: Any) -> Any:
        try:
            seals.check(request, name, time.monotonic(), free(request))
            response = answer(request)
        except ValueError as error:
            if cause := getattr(error, 'cause', ''):
                seals.refuse(cause, str(error))
            response = refused(quoted(error))
        except Exception as error:  # a service that raises would end the node
            seals.refuse('handler', f'{name}: {type(error).__name__}: {error}')
            response = refused(f'{type(error).__name__}: {quoted(error)}')
        return seals.sealed(response, request)
    return node.create_service(kind, name, called, qos_profile=QOS, **options)


def question_of(kind: Any) -> Any:
    """Return a request of a type that only asks for a challenge."""
    return kind(number=drawn())


def seal_request(key: SharedKey, request: Any, challenge: int) -> Any:
    """Return a request with its seal; `challenge` is that of an answer of the same node."""
    request.number, request.challenge = drawn(), challenge
    request.mac = array('B', _request_mac(key, request))
    return request


def check_answer(key: SharedKey, answer: Any, request: Any) -> None:
    """
    Check the seal of an answer.

    :raises SealError: if the key does not seal it.
    """
    if not is_mac(answer.mac, _answer_mac(key, answer, request)):
        raise SealError('forged' if len(answer.mac) else 'unsealed',
                        'the answer is not sealed with our key for this request')


def sros2_enforces(environment: Mapping[str, str] = os.environ) -> bool:
    """Return whether the middleware lets only those call that a policy names."""
    return (environment.get('ROS_SECURITY_ENABLE', '').lower() == 'true'
            and environment.get('ROS_SECURITY_STRATEGY', '') == 'Enforce')


def size_of(message: Any, most: int) -> int:
    """Return about how many bytes the fields of a message have, no matter how far over `most`."""
    size = 0
    for part in _parts(message, 'message'):
        size += len(part)
        if size > most:
            break
    return size


def _request_mac(key: SharedKey, request: Any) -> bytes:
    return mac_of(key.derived(f'call {_name(request)}'), _parts(request, 'message'))


def _answer_mac(key: SharedKey, answer: Any, request: Any) -> bytes:
    head = struct.pack('<2QB', request.number, request.challenge, len(request.mac))
    return mac_of(key.derived(f'answer {_name(answer)}'), (
        head, bytes(request.mac), *_parts(answer, 'message')))


def _name(message: Any) -> str:
    return f'{type(message).__module__} {type(message).__name__}'


def _parts(value: Any, kind: str) -> Iterator[bytes]:
    """
    Yield all fields of a message but `mac`, so that no two messages yield the same bytes.

    The serialised message would not do: what stands between its fields is not defined.
    """
    if isinstance(value, str):
        text = value.encode('utf-8', 'surrogatepass')
        yield b's%d:' % len(text) + text
    elif isinstance(value, bool | int):
        yield b'i%d:' % value
    elif isinstance(value, float):
        yield b'f' + struct.pack('<f' if kind.startswith(('float', 'sequence<float')) else '<d',
                                 value)
    elif hasattr(value, 'get_fields_and_field_types'):
        for name, of in value.get_fields_and_field_types().items():
            if name != 'mac':
                yield from _parts(getattr(value, name), of)
    elif isinstance(value, bytes | array) and len(memoryview(value).cast('B')) == len(value):
        yield b'b%d:' % len(value) + bytes(value)
    else:
        yield b'l%d:' % len(value)
        for one in value:
            yield from _parts(one, kind)
