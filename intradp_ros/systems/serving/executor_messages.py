# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""
What a gateway and the process of an executor say to each other.

The first byte says what a message is: JSON, a batch, an answer.  Both know the shapes of a
service's rows, so that tensors are bytes alone: of each tensor all rows, one after another.
"""
from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
import json
import math
import struct
from typing import Any

import numpy as np

from intradp_ros.core.child_process import Bytes
from intradp_ros.core.json_text import parse_json
from intradp_ros.runtime.requests.infer_requests import Tensors
from intradp_ros.systems.serving.service import TensorSpec

JSON, BATCH, RESULT = b'J', b'B', b'R'
#: Characters of what is said of a row that has no answer.
MOST_WHY = 500
_BATCH = struct.Struct('<cQHH')
_RESULT = struct.Struct('<cQdHI')


def json_message(**what: Any) -> bytes:
    """Return a message of plain values."""
    return JSON + json.dumps(what).encode()


@dataclass(frozen=True, slots=True)
class Batch:
    """Rows for a service; their bytes begin at `start` of the message."""

    number: int
    service: int
    rows: int
    message: bytearray
    start: int


def batch_message(number: int, service: int, inputs: Sequence[TensorSpec],
                  rows: Sequence[Tensors]) -> list[Bytes]:
    """Return the parts of a batch; rows have all inputs, of the right shapes."""
    parts: list[Bytes] = [_BATCH.pack(BATCH, number, service, len(rows))]
    for spec in inputs:
        parts += [row[spec.name].reshape(-1).view(np.uint8).data for row in rows]
    return parts


def check_batch(message: Bytes, row_bytes: Mapping[int, int], most: int) -> int:
    """Return the number of a batch of at most so many rows; ValueError if a message is none."""
    if len(message) >= _BATCH.size:
        kind, number, service, rows = _BATCH.unpack_from(message)
        if kind == BATCH and service in row_bytes and 0 < rows <= most \
                and len(message) == _BATCH.size + rows * row_bytes[service]:
            return int(number)
    raise ValueError('it is not a batch of a service that is offered')


def check_answer(message: Bytes, rows: Mapping[int, int], row_bytes: Mapping[int, int]) -> None:
    """
    Raise ValueError if a message of a stranger is not an answer to a batch that runs.

    `rows` of each such batch, and the bytes of one row of its outputs, by the batch's number.
    """
    if len(message) < _RESULT.size:
        raise ValueError('it is too short for an answer')
    _, number, seconds, count, length = _RESULT.unpack_from(message)
    if rows.get(number) != count or not 0 <= seconds < math.inf \
            or len(message) != _RESULT.size + length + count * row_bytes[number]:
        raise ValueError('it is not an answer to a batch that runs')
    if length:
        why = parse_json(bytes(memoryview(message)[_RESULT.size:_RESULT.size + length]),
                         8 * MOST_WHY * count)
        if not isinstance(why, list) or len(why) != count or not all(
                isinstance(text, str) and len(text) <= MOST_WHY for text in why):
            raise ValueError('it does not say by row why there is no answer')


def batch_of(message: bytearray) -> Batch:
    """Return the batch that a message holds."""
    _, number, service, rows = _BATCH.unpack_from(message)
    return Batch(number, service, rows, message, _BATCH.size)


@dataclass(frozen=True, slots=True)
class BatchResult:
    """
    What became of a batch: `seconds` of computing, and outputs by row.

    `why` says by row why there are none; '' where there are.
    """

    number: int
    seconds: float
    rows: Sequence[Tensors]
    why: Sequence[str]


def answer_message(number: int, seconds: float, why: Sequence[str], outputs: Sequence[Bytes],
                   ) -> list[Bytes]:
    """Return the parts of an answer; `outputs` are the bytes of all rows of each tensor."""
    text = json.dumps(list(why)).encode() if any(why) else b''
    return [_RESULT.pack(RESULT, number, seconds, len(why), len(text)), text, *outputs]


def answer_number(message: Bytes) -> int:
    """Return the number of the batch that a message answers."""
    return int(_RESULT.unpack_from(message)[1])


def answer_of(message: bytearray, outputs: Sequence[TensorSpec]) -> BatchResult:
    """Return what an answer says; its arrays lie in the message."""
    _, number, seconds, count, length = _RESULT.unpack_from(message)
    at = _RESULT.size + length
    why = json.loads(message[_RESULT.size:at]) if length else [''] * count
    rows: list[dict[str, Any]] = [{} for _ in range(count)]
    for spec in outputs:
        nbytes = count * spec.nbytes
        whole = np.frombuffer(message, spec.dtype, nbytes // np.dtype(spec.dtype).itemsize,
                              at).reshape((count, *spec.shape))
        for k, row in enumerate(rows):
            row[spec.name] = whole[k, ...]  # an array also where it is one number
        at += nbytes
    return BatchResult(number, seconds, rows, why)
