# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""
Seals of the messages between robot and server: a keyed MAC and a number that comes once.

A session has keys of its own for each way, derived from the shared key and
from the two random numbers that robot and server drew when they started.  So
what was recorded of another session, another run of the server, or the other
way is worth nothing.  Two devices of a fleet have the number of their connection in place of the
server's (`wire/handshake.py`).
"""
from __future__ import annotations

from array import array
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping
import struct
from typing import Any

from intradp_ros.core.shared_key import is_mac, mac_of, SharedKey
from intradp_ros.msg import ChunkAck, SessionControl, TensorChunk
from intradp_ros.wire.frames import ControlKind, MalformedFrameError
from intradp_ros.wire.replay_window import ReplayWindow

#: Ways whose numbers are remembered, two of a session; only who has the key can begin one.
MAX_WINDOWS, MAX_PINGING = 1 << 14, 256
_CHUNK = struct.Struct('<4Q8IiI3B3I')
_CONTROL = struct.Struct('<B4QIQ')
_ACK = struct.Struct('<3QIqd')


class Sealer:
    """
    Seals what one side sends and checks what it receives; does neither without a key.

    `out` and `back` name the two ways.  `paired` says that one process sends all that comes, and
    counts its control frames whatever their session.  `seal` and `check` each belong to one
    thread.
    """

    def __init__(self, key: SharedKey | None, out: str, back: str, *, paired: bool = False,
                 ) -> None:
        self._key, self._out, self._back, self._paired = key, out, back, paired
        self._windows: OrderedDict[tuple[str, int, int], ReplayWindow] = OrderedDict()
        self._pinging: OrderedDict[tuple[str, int, int], ReplayWindow] = OrderedDict()

    def seal(self, message: Any) -> Any:
        """Return the message with its MAC."""
        if self._key:
            message.mac = array('B', self._mac(self._key, self._out, message))
        return message

    def check(self, message: Any) -> None:
        """
        Check who sent a message, and that it did not come before.

        :raises MalformedFrameError: if it has no seal, not the right one, or was here before.
        """
        self.check_seal(message)
        self.check_new(message)

    def check_seal(self, message: Any) -> None:
        """Check who sent a message; MalformedFrameError if it is not sealed with our key."""
        if self._key is None:
            return
        kind = type(message).__name__
        if not len(message.mac):
            raise MalformedFrameError(f'a {kind} without a seal: its sender has no key_file',
                                      'unsealed')
        if not is_mac(message.mac, self._mac(self._key, self._back, message)):
            raise MalformedFrameError(f'a {kind} that was not sealed with our key', 'forged')

    def check_new(self, message: Any) -> None:
        """Check that a message did not come before; MalformedFrameError if it did."""
        # An acknowledgement is compared with what is in flight, a greeting answers a challenge.
        repeats = isinstance(message, ChunkAck) or is_greeting(message)
        kind = type(message).__name__
        if self._key and not repeats and not self._window(kind, message).take(message.sequence):
            raise MalformedFrameError(f'a {kind} that was here before', 'replayed')

    def _mac(self, key: SharedKey, way: str, message: Any) -> bytes:
        kind = type(message)
        own = key.derived(f'{way} {kind.__name__}', message.session, message.server)
        return mac_of(own, _CONTENT[kind](message))

    def _window(self, kind: str, message: Any) -> ReplayWindow:
        one = self._paired and isinstance(message, SessionControl)
        name = kind, 0 if one else message.session, message.server
        # A ping is addressed to no run of a server: those that were sent to one before are late.
        # They have windows of their own, so that they displace none of this run.
        late = not message.server
        windows, most = (self._pinging, MAX_PINGING) if late else (self._windows, MAX_WINDOWS)
        window = windows.setdefault(name, ReplayWindow(late=late))
        windows.move_to_end(name)
        if len(windows) > most:
            windows.popitem(last=False)
        return window


def is_greeting(message: Any) -> bool:
    """Return whether a message is sent before there is a connection."""
    return isinstance(message, SessionControl) and message.kind == ControlKind.GREETING


def _of_chunk(m: TensorChunk) -> Iterator[Any]:
    frame_id, stamp = m.header.frame_id.encode(), m.header.stamp
    yield _CHUNK.pack(
        m.session, m.server, m.inference, m.sequence, m.epoch, m.schedule, m.transfer, m.value,
        m.start, m.stop, m.chunk, m.count, stamp.sec, stamp.nanosec, m.dtype_code, m.dtype_bits,
        m.codec, len(frame_id), len(m.shape), len(m.data))
    yield frame_id
    yield struct.pack(f'<{len(m.shape)}I', *m.shape)
    yield m.data


def _of_control(m: SessionControl) -> Iterator[Any]:
    body = m.body.encode('utf-8', 'surrogatepass')
    yield _CONTROL.pack(m.kind, m.session, m.server, m.inference, m.sequence, m.epoch, len(body))
    yield body


def _of_ack(m: ChunkAck) -> Iterator[Any]:
    yield _ACK.pack(m.session, m.server, m.sequence, m.bytes, m.received_ns, m.rate)


_CONTENT: Mapping[type, Callable[[Any], Iterator[Any]]] = {
    TensorChunk: _of_chunk, SessionControl: _of_control, ChunkAck: _of_ack}
