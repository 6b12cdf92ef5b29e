# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""
Requests and ends as messages of the service ``Infer``, and back; with a key, sealed.

What comes from the network is checked field by field; tensors share the memory of their message.
A seal of a request is good at one gateway, once: it covers the challenge of that gateway, and
numbers grow within a stream.  The seal of an answer covers that of its request.
"""
from __future__ import annotations

from array import array
from collections.abc import Iterator, Sequence
from dataclasses import replace
import math
import struct
from typing import Any

import numpy as np
import torch

from intradp_ros.core.shared_key import is_mac, MAC_BYTES, mac_of, SharedKey
from intradp_ros.msg import Tensor
from intradp_ros.runtime.requests.infer_requests import (
    DTYPES,
    InferEnd,
    InferFate,
    InferRequest,
    MAX_NAME,
    MAX_TENSOR_DIMENSIONS,
    MAX_TENSORS,
    Tensors,
)
from intradp_ros.srv import Infer
from intradp_ros.systems.serving.service import TensorSpec
from intradp_ros.wire.dtypes import decode_dtype, encode_dtype
from intradp_ros.wire.handshake import drawn

#: Bytes of the tensors of a request, and of an answer; streams whose numbers are remembered.
MAX_REQUEST, MAX_ANSWER, MAX_STREAMS = 16 << 20, 64 << 20, 1024
_MAX_REASON, _CLIENT = 2000, 'ros'


class InferMessageError(ValueError):
    """A message that is not taken; the text names the field."""


class SealError(InferMessageError):
    """A message without the seal of the key that is shared; `cause` counts it."""

    def __init__(self, cause: str, text: str) -> None:
        super().__init__(text)
        self.cause = cause


def request_of(message: Infer.Request, spent: float) -> InferRequest:
    """
    Return the request that a message is, which came `spent` seconds ago.

    :raises InferMessageError: if it is not taken.
    """
    try:
        remaining = float(message.remaining)
        if not remaining >= 0:
            raise ValueError(f'remaining is {remaining}: send seconds, or inf for the deadline of '
                             'the service')
        return InferRequest(
            message.service[:MAX_NAME], tensors_of(message.inputs, MAX_REQUEST),
            max(0.0, remaining - spent), message.priority, _CLIENT, message.stream,
            message.number)
    except InferMessageError:
        raise
    except ValueError as error:
        raise InferMessageError(str(error)) from None


def request_message(request: InferRequest) -> Infer.Request:
    """Return a request as a message that is not sealed."""
    return Infer.Request(
        service=request.service, inputs=_messages(request.tensors),
        remaining=float(request.remaining), priority=request.priority, stream=request.stream,
        number=request.frame)


def answer_message(end: InferEnd, specs: Sequence[Sequence[TensorSpec]] = ((), ()),
                   ) -> Infer.Response:
    """Return an end as a message that is not sealed; `specs` of inputs and outputs if asked."""
    takes, gives = ([f'{spec.name} {spec.dtype} {"x".join(map(str, spec.shape))}'
                     for spec in found[:MAX_TENSORS]] for found in specs)
    return Infer.Response(
        outputs=_messages(end.tensors), fate=end.fate.value, reason=end.reason[:_MAX_REASON],
        site=end.site, batch=end.batch, queue=end.queue, compute=end.compute,
        predicted=end.predicted, finished=end.finished, retry_after=end.retry_after,
        takes=takes, gives=gives)


def end_of(message: Infer.Response) -> InferEnd:
    """
    Return the end that an answer says.

    :raises InferMessageError: if it says none.
    """
    try:
        fate = InferFate(message.fate)
    except ValueError:
        raise InferMessageError(f'an answer of fate {message.fate[:40]!r}') from None
    return InferEnd(
        fate, message.reason[:_MAX_REASON],
        tensors_of(message.outputs, MAX_ANSWER) if fate is InferFate.IN_TIME else {},
        message.retry_after, message.predicted, message.finished, message.queue, message.compute,
        message.batch, message.site[:MAX_NAME])


def specs_of(texts: Sequence[str]) -> tuple[TensorSpec, ...]:
    """Return what an answer says of the tensors of a service; InferMessageError if none."""
    found = []
    for text in texts:
        name, dtype, shape = ([*text.rsplit(' ', 2), '', ''])[:3]
        sizes = shape.split('x') if shape else []
        if not name or len(name) > MAX_NAME or dtype not in DTYPES \
                or len(sizes) > MAX_TENSOR_DIMENSIONS \
                or not all(size.isdecimal() and len(size) < 10 for size in sizes):
            raise InferMessageError(f'{text[:80]!r} is not a name, a dtype and a shape')
        found.append(TensorSpec(name, dtype, tuple(map(int, sizes))))
    return tuple(found)


def tensors_of(messages: Sequence[Tensor], most: int) -> Tensors:
    """
    Return tensors by name, which share the memory of their messages.

    :raises InferMessageError: if a field is impossible, or they have more than `most` bytes
        together.
    """
    total = sum(len(message.data) for message in messages)
    if total > most:
        raise InferMessageError(f'tensors of {total} bytes: at most {most} are taken')
    found: dict[str, Any] = {}
    for message in messages:
        name = message.name[:MAX_NAME + 1]
        if not 1 <= len(name) <= MAX_NAME or name in found:
            raise InferMessageError(f'tensor {name[:80]!r}: names are different texts of 1 to '
                                    f'{MAX_NAME} characters')
        try:
            dtype = str(decode_dtype(message.dtype_code, message.dtype_bits)).removeprefix(
                'torch.')
        except ValueError as error:
            raise InferMessageError(f'tensor {name!r}: {error}') from None
        shape = tuple(message.shape[:MAX_TENSOR_DIMENSIONS + 1])
        if dtype not in DTYPES or len(shape) > MAX_TENSOR_DIMENSIONS:
            raise InferMessageError(f'tensor {name!r} has dtype {dtype} and {len(shape)} '
                                    f'dimensions: send one of {", ".join(DTYPES)}, and at most '
                                    f'{MAX_TENSOR_DIMENSIONS}')
        if math.prod(shape) * np.dtype(dtype).itemsize != len(message.data):
            raise InferMessageError(f'tensor {name!r}: {len(message.data)} bytes are not {dtype} '
                                    f'of shape {"x".join(map(str, shape))}')
        found[name] = np.frombuffer(message.data, dtype).reshape(shape)
    return found


def _messages(tensors: Tensors) -> list[Tensor]:
    found = []
    for name, tensor in tensors.items():
        code, bits = encode_dtype(getattr(torch, tensor.dtype.name))
        data = array('B')
        data.frombytes(np.ascontiguousarray(tensor).reshape(-1).view(np.uint8).data)
        found.append(Tensor(name=name, dtype_code=code, dtype_bits=bits,
                            shape=array('I', tensor.shape), data=data))
    return found


class RequestSeals:
    """A gateway's check of who asks; without a key everybody may."""

    def __init__(self, key: SharedKey | None) -> None:
        self._key = key
        self._numbers: dict[str, int] = {}
        self.challenge = drawn() if key else 0

    def check(self, message: Infer.Request) -> None:
        """
        Check the seal of a request, which is good once.

        :raises SealError: if it has none that is good.
        """
        if self._key is None:
            return
        if not len(message.mac):
            raise SealError('unsealed', 'the request is not sealed with the key of this gateway: '
                            'give the client its key_file')
        if not is_mac(message.mac, _request_mac(self._key, message)):
            raise SealError('forged', 'the request is sealed with another key')
        if message.challenge != self.challenge:
            raise SealError('challenge', 'the request is sealed for another challenge: seal it '
                            'with that of this answer')
        if message.number <= self._numbers.get(message.stream, 0):
            raise SealError('replayed', f'number {message.number} of this stream came before')
        if len(self._numbers) >= MAX_STREAMS:
            self._numbers.clear()
            self.challenge = drawn()
        self._numbers[message.stream] = message.number

    def sealed(self, answer: Infer.Response, request: Infer.Request, own: bool) -> Infer.Response:
        """
        Return an answer with the challenge of the next request, and its seal.

        A request that is not its sender's `own` has an answer without one: a stranger could pass
        it on in another's name.
        """
        if self._key is not None:
            answer.challenge = self.challenge
            if own:
                answer.mac = array('B', _answer_mac(self._key, answer, request))
        return answer


def sealed_request(key: SharedKey | None, request: Infer.Request, challenge: int,
                   ) -> Infer.Request:
    """Return a request with its seal; `challenge` is that of the gateway's answers."""
    if key is not None:
        request.challenge = challenge
        request.mac = array('B', _request_mac(key, request))
    return request


def check_answer(key: SharedKey | None, answer: Infer.Response, request: Infer.Request) -> None:
    """
    Check the seal of an answer.

    :raises SealError: if there is a key and it does not seal the answer.
    """
    if key is not None and not is_mac(answer.mac, _answer_mac(key, answer, request)):
        raise SealError('forged' if len(answer.mac) else 'unsealed',
                        'the answer is not sealed with our key for this request')


def _request_mac(key: SharedKey, message: Infer.Request) -> bytes:
    texts = [message.service.encode(), message.stream.encode()]
    return mac_of(key.derived('Infer'), (
        struct.pack('<dqQQ3I', message.remaining, message.priority, message.number,
                    message.challenge, len(message.inputs), *map(len, texts)),
        *texts, *_parts(message.inputs)))


def _answer_mac(key: SharedKey, answer: Infer.Response, request: Infer.Request) -> bytes:
    texts = [text.encode() for text in (answer.fate, answer.reason, answer.site, request.stream,
                                        *answer.takes, *answer.gives)]
    return mac_of(key.derived('Infer answer 2'), (
        bytes(request.mac).ljust(MAC_BYTES, b'\0'),
        struct.pack(f'<3Q5di{3 + len(texts)}I', request.challenge, request.number,
                    answer.challenge, answer.queue, answer.compute, answer.predicted,
                    answer.finished, answer.retry_after, answer.batch, len(answer.outputs),
                    len(answer.takes), len(answer.gives), *map(len, texts)),
        *texts, *_parts(answer.outputs)))


def _parts(tensors: Sequence[Tensor]) -> Iterator[Any]:
    for tensor in tensors:
        name = tensor.name.encode()
        yield struct.pack(f'<IBBIQ{len(tensor.shape)}I', len(name), tensor.dtype_code,
                          tensor.dtype_bits, len(tensor.shape), len(tensor.data), *tensor.shape)
        yield name
        yield memoryview(tensor.data)


def late_if_over(end: InferEnd, over: bool) -> InferEnd:
    """Return an end as it is delivered now: no answer whose time is over."""
    if over and end.fate is InferFate.IN_TIME:
        return replace(end, fate=InferFate.LATE, reason='late: on the way back', tensors={})
    return end
