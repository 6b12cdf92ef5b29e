# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""What the runtime asks of a transport; `memory_channel.py` and the DDS floor provide it."""
from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol

from intradp_ros.wire.frames import Chunk, Control, Frame


@dataclass(frozen=True, slots=True)
class LinkReport:
    """
    The link as a channel sees it: rates in bytes per second, times in seconds; 0.0 if unknown.

    `send_rate` is what the other side measures of what this side sends, the
    last time `age` ago; `receive_rate` is measured here, the last time
    `receive_age` ago.  Both are rates of tensor data while the link is busy.
    `round_trip` is the smallest of the last seconds, without the time that a
    chunk's own bytes take.  The other side `acknowledged` a chunk so many seconds ago.
    """

    send_rate: float = 0.0
    receive_rate: float = 0.0
    round_trip: float = 0.0
    age: float = float('inf')
    receive_age: float = float('inf')
    bytes_sent: int = 0
    bytes_received: int = 0
    acknowledged: float = float('inf')


class Channel(Protocol):
    """
    An ordered, non-blocking way to the other side.

    Sending puts frames into a queue and returns at once; control frames
    overtake queued chunks.  Frames may be lost; they are never altered.
    `listen` names the function that the channel's own receive thread calls
    with every frame; it must return quickly.
    """

    @property
    def chunk_bytes(self) -> int:
        """Bytes of a chunk, as the link is now."""

    def chunk_bytes_of(self, session: int) -> int:
        """Return the bytes of a chunk of a session, as the way to its robot is now."""

    @property
    def waiting(self) -> int:
        """Bytes of chunks that wait to be sent."""

    @property
    def rejected(self) -> Mapping[str, int]:
        """Messages that could not be made into frames, by cause."""

    def send(self, frame: Chunk | Control) -> None:
        """Queue one frame."""

    def abandon(self, session: int, inference: int) -> None:
        """Drop chunks of a session's inference that still wait in the queue."""

    def listen(self, handler: Callable[[Frame], None]) -> None:
        """Call `handler` with every frame from now on."""

    def report(self) -> LinkReport:
        """Return what is known of the link now."""

    def close(self) -> None:
        """Stop; later sends are ignored."""
