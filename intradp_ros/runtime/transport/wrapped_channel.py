# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""A channel around another one."""
from __future__ import annotations

from collections.abc import Mapping

from intradp_ros.runtime.transport.channel import Channel, LinkReport
from intradp_ros.wire.frames import Chunk, Control


class WrappedChannel:
    """Passes all on; with `listen`, and what an heir does besides, it is a `Channel`."""

    def __init__(self, channel: Channel) -> None:
        self._channel = channel

    @property
    def chunk_bytes(self) -> int:
        """Bytes of a chunk, as the link is now."""
        return self._channel.chunk_bytes

    def chunk_bytes_of(self, session: int) -> int:
        """Return the bytes of a chunk of a session, as the way to its robot is now."""
        return self._channel.chunk_bytes_of(session)

    @property
    def waiting(self) -> int:
        """Bytes of chunks that wait to be sent."""
        return self._channel.waiting

    @property
    def rejected(self) -> Mapping[str, int]:
        """Messages that could not be made into frames, by cause."""
        return self._channel.rejected

    def send(self, frame: Chunk | Control) -> None:
        """Queue one frame."""
        self._channel.send(frame)

    def abandon(self, session: int, inference: int) -> None:
        """Drop chunks of a session's inference that still wait in the queue."""
        self._channel.abandon(session, inference)

    def report(self) -> LinkReport:
        """Return what is known of the link now."""
        return self._channel.report()

    def close(self) -> None:
        """Stop; later sends are ignored."""
        self._channel.close()
