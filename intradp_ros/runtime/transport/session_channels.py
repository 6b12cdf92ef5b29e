# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""A channel around another one, and several sessions of one robot on one channel."""
from __future__ import annotations

from collections.abc import Callable, Mapping
import threading

from intradp_ros.runtime.transport.channel import Channel, LinkReport
from intradp_ros.wire.frames import Chunk, Control, Frame

Handler = Callable[[Frame], None]


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


class SessionChannels:
    """
    Gives each session a `Channel` of its own, by way of the one that there is.

    That one listens to nobody else, and closes with the last of them.
    """

    def __init__(self, channel: Channel) -> None:
        self.channel = channel
        self.foreign = 0
        self._handlers: dict[int, Handler] = {}
        self._open: set[SessionChannel] = set()
        self._lock = threading.Lock()
        channel.listen(self._take)

    def of_a_session(self) -> SessionChannel:
        """Return another session's channel; the session is that of the first frame it sends."""
        opened = SessionChannel(self)
        with self._lock:
            self._open.add(opened)
        return opened

    @property
    def sessions(self) -> frozenset[int]:
        """Sessions that have sent something."""
        return frozenset(self._handlers)

    def begin(self, session: int, handler: Handler) -> None:
        """Let a session have its frames."""
        self._handlers.setdefault(session, handler)

    def end(self, ended: SessionChannel, session: int) -> None:
        """Take a session's channel back."""
        with self._lock:
            self._handlers.pop(session, None)
            self._open.discard(ended)
            last = not self._open
        if last:
            self.channel.close()

    def _take(self, frame: Frame) -> None:
        handler = self._handlers.get(frame.session)
        if handler:
            handler(frame)
        else:
            self.foreign += 1


class SessionChannel(WrappedChannel):
    """One session's part of a channel; what waits, and what is rejected, is of all sessions."""

    def __init__(self, channels: SessionChannels) -> None:
        super().__init__(channels.channel)
        self._channels = channels
        self._handler: Handler | None = None
        self._session = 0

    @property
    def chunk_bytes(self) -> int:
        """Bytes of a chunk, as the way to its robot is now."""
        return self.chunk_bytes_of(self._session)

    def send(self, frame: Chunk | Control) -> None:
        """Queue one frame."""
        if not self._session:
            self._session = frame.session
            self._channels.begin(frame.session, self._take)
        super().send(frame)

    def listen(self, handler: Handler) -> None:
        """Call `handler` with every frame from now on."""
        self._handler = handler

    def close(self) -> None:
        """Stop; later sends are ignored once all sessions have."""
        self._handler = None
        self._channels.end(self, self._session)

    def _take(self, frame: Frame) -> None:
        if self._handler:
            self._handler(frame)
