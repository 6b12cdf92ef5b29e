# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""
Web sockets of uvicorn with bounds on what a client may send that no application sees.

uvicorn keeps pieces of messages as long as they come, answers pings whether or not the answers
are read, and reads on.  Here what waits counts as the client's, with all its sockets, and so do
frames that are not messages: who sends too many of them, or too much, is read from more slowly.
"""
from __future__ import annotations

from typing import Any, Protocol

from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol

#: Pieces of a message, in addition to one for each so many bytes of it.
MOST_PIECES, PIECE = 1024, 1024
#: Bytes that wait to be sent, above which pings are not answered (RFC 6455 5.5.3 allows that).
UNREAD = 1 << 16
#: Seconds after which a client is read from again that has too much waiting, and after which its
#: connection is cut where that stays so.
PAUSE, LONGEST = 0.05, 5.0
#: Why an answer is not kept for a client.
NOT_READ = 'late: too many answers wait to be read'
#: Why a connection is closed: for a text that is none, a message that is too large.
NO_TEXT, TOO_LARGE = 1007, 1009


class Share(Protocol):
    """What one client has of a server, with all its connections."""

    def take(self, count: int) -> bool:
        """Count bytes that wait as the client's; False if they are too many."""

    def give(self, count: int) -> None:
        """Count them no more."""

    def frames(self, count: int) -> float:
        """Count frames; return for how many seconds nothing more should be read."""


class Unread:
    """Answers that wait to be read: they count as what their client has of a server."""

    def __init__(self, share: Share | None) -> None:
        self._share, self._size = share, 0

    def take(self, data: bytes | str) -> bool:
        """Count an answer; False if the client has too much already."""
        if self._share is None or not self._share.take(len(data)):
            return self._share is None
        self._size += len(data)
        return True

    def give(self, data: bytes | str) -> None:
        """Count an answer no more, which was taken."""
        if self._share is not None:
            self._share.give(len(data))
            self._size -= len(data)

    def close(self) -> None:
        """Count nothing any more."""
        if self._share is not None:
            self._share.give(self._size)
        self._share = None


class WebSocket(WebSocketsSansIOProtocol):
    """One connection; its `Share` stands in the state of its scope once its client is known."""

    _kept = _pieces = _size = _frames = 0
    _late, _full = b'', 0.0

    def data_received(self, data: bytes) -> None:
        """Take bytes, unless the client has sent too many frames: then later."""
        share = self._share()
        if share is None:
            super().data_received(data)
            return
        wait = share.frames(0)
        if not wait and not share.take(len(data)):
            wait, self._full = PAUSE, self._full or self.loop.time()
            if self.loop.time() - self._full > LONGEST:
                self.transport.abort()
                return
        if wait:
            self._late += data
            self.transport.pause_reading()
            self.loop.call_later(wait, self._go_on)
            return
        self._full = 0.0
        self._kept += len(data)
        super().data_received(data)
        share.frames(self._frames)
        self._frames = 0
        if self.queue.empty():
            share.give(self._left())

    def connection_lost(self, exc: Exception | None) -> None:
        """Let go of what was kept."""
        if share := self._share():
            share.give(self._kept)
        self._kept, self._late = 0, b''
        super().connection_lost(exc)

    async def receive(self) -> Any:
        """Return the next message, with what it takes of the share as ``held``."""
        message = await super().receive()
        if (share := self._share()) and self.queue.empty():
            left = self._left()
            if message['type'] == 'websocket.receive':
                return {**message, 'held': left}
            share.give(left)
        return message

    def handle_bytes(self, event: Any) -> None:
        """Note the first piece of a message."""
        self._pieces, self._size = 0, 0 if event.fin else len(event.data)
        super().handle_bytes(event)

    def handle_text(self, event: Any) -> None:
        """Note the first piece of a message."""
        self._pieces, self._size = 0, 0 if event.fin else len(event.data)
        super().handle_text(event)

    def handle_cont(self, event: Any) -> None:
        """Take a further piece of a message that has not too many."""
        self._pieces += 1
        self._frames += 1
        self._size = 0 if event.fin else self._size + len(event.data)
        if self._pieces > MOST_PIECES + self._size // PIECE:
            self._refuse(TOO_LARGE, 'a message in too many pieces')
        else:
            super().handle_cont(event)

    def send_receive_event_to_app(self) -> None:
        """Hand on a message; uvicorn writes a trace for each text that is none."""
        try:
            if self.curr_msg_data_type == 'text':
                b''.join(self.frames).decode()
        except UnicodeDecodeError:
            self._refuse(NO_TEXT, 'a text that is not UTF-8')
        else:
            super().send_receive_event_to_app()

    def handle_ping(self) -> None:
        """Answer a ping, if answers are read."""
        self._frames += 1
        if self.transport.get_write_buffer_size() > UNREAD:
            self.conn.data_to_send()
        else:
            super().handle_ping()

    def handle_pong(self, event: Any) -> None:
        """Take an answer."""
        self._frames += 1
        super().handle_pong(event)

    def _share(self) -> Share | None:
        scope = getattr(self, 'scope', None)
        found: Share | None = scope['state'].get('share') if scope else None
        return found

    def _left(self) -> int:
        """Keep the bytes of a message that has begun; return the count of all others."""
        before, self._kept = self._kept, min(
            self._kept, self._size + len(self.conn.reader.buffer))
        return before - self._kept

    def _go_on(self) -> None:
        if not self.disconnected and not self.transport.is_closing():
            data, self._late = self._late, b''
            if not self.read_paused:
                self.transport.resume_reading()
            if data:
                self.data_received(data)

    def _refuse(self, code: int, reason: str) -> None:
        """Close, with the reason if the client reads."""
        if self.transport.is_closing():
            return
        self.frames = []
        self.conn.fail(code, reason)
        self.transport.write(b''.join(self.conn.data_to_send()))
        self.close_sent = True
        if self.transport.get_write_buffer_size():
            self.transport.abort()
        else:
            self.transport.close()
