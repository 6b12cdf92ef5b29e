# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""What crosses the link, independent of the transport that carries it."""
from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any

#: Version of what crosses the link; both ends speak the same.
PROTOCOL = 7


class ControlKind(IntEnum):
    """Kinds of control frames; the numbers are those of SessionControl.msg."""

    HELLO = 1
    WELCOME = 2
    REFUSE = 3
    BOOK = 4
    BOOK_READY = 5
    CANCEL = 6
    FAILED = 7
    REPORT = 8
    PING = 9
    PONG = 10
    BYE = 11
    PREPARE = 12
    READY = 13
    COMMIT = 14
    ABORT = 15
    COMMITTED = 16
    HEARTBEAT = 17
    CLAIM = 18
    RESIGN = 19
    FETCH = 20
    HELD = 21
    GREETING = 22
    LINES = 23


@dataclass(frozen=True, slots=True)
class Stamp:
    """Time and frame id of the sensor message that caused an inference."""

    sec: int = 0
    nanosec: int = 0
    frame_id: str = ''


@dataclass(frozen=True, slots=True)
class Chunk:
    """One chunk of one transfer; fields as in TensorChunk.msg."""

    session: int
    epoch: int
    inference: int
    schedule: int
    transfer: int
    value: int
    start: int
    stop: int
    chunk: int
    count: int
    dtype_code: int
    dtype_bits: int
    codec: int
    shape: tuple[int, ...]
    data: Any
    stamp: Stamp = Stamp()
    server: int = 0


@dataclass(frozen=True, slots=True)
class Control:
    """
    A control frame; `body` is what the JSON text of SessionControl.msg holds.

    `server` is the one that is addressed, or that sends; 0 is any.
    """

    kind: ControlKind
    session: int = 0
    epoch: int = 0
    inference: int = 0
    body: Mapping[str, Any] = field(default_factory=dict)
    server: int = 0


Frame = Chunk | Control


class MalformedFrameError(ValueError):
    """
    A frame from the network that must not be used.

    The text says what is wrong with this frame; `cause` is a short word for
    the kind of fault, by which such frames are counted and logged.
    """

    def __init__(self, text: str, cause: str = 'malformed') -> None:
        super().__init__(text)
        self.cause = cause
