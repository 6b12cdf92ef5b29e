# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""Lines between a coordinator's planner and a device's role, once and in order, as frames."""
from __future__ import annotations

from collections.abc import Callable
import contextlib
import threading
import time

from intradp_ros.cluster.plan_id import NO_PLAN, PlanId
from intradp_ros.runtime.transport.peer_channel import PeerChannel
from intradp_ros.wire.frames import Control, ControlKind, MalformedFrameError
from intradp_ros.wire.line_stream import LineReceiver, LineSender

#: No stream has as many pieces, nor as high a number.
MAX_NUMBER = 1 << 53


class LineWay:
    """
    One end of a stream of lines with a peer, under the plan that `plan` returns, if it is one.

    `number` is the stream's, drawn by who plans: frames of other streams are not of this one.
    `lines` takes what came, in the thread of `take`, with locks held: it must return at once.
    Somebody calls `tick` from time to time.
    """

    def __init__(self, channel: PeerChannel, peer: str, number: int, plan: Callable[[], PlanId],
                 lines: Callable[[list[str]], None]) -> None:
        self.peer, self.number = peer, number
        self._channel, self._plan, self._lines = channel, plan, lines
        self._sender, self._receiver = LineSender(), LineReceiver()
        self._lock = threading.Lock()

    @property
    def idle(self) -> bool:
        """Whether all that was put has arrived."""
        return self._sender.idle

    def put(self, line: str) -> None:
        """Send a line of ASCII text; OverflowError if the peer takes none for too long."""
        with self._lock:
            self._sender.put(line)
            self._send()

    def take(self, frame: Control) -> None:
        """
        Take a frame of this stream.

        :raises MalformedFrameError: if it makes no sense.
        """
        text, acknowledged = frame.body.get('text', ''), frame.body.get('ack')
        if type(acknowledged) is not int or not isinstance(text, str) or \
                not 0 <= max(frame.inference, acknowledged) < MAX_NUMBER:
            raise MalformedFrameError('lines without text and numbers', 'lines')
        with self._lock:
            self._sender.acknowledge(acknowledged)
            if frame.inference:
                lines = self._receiver.take(frame.inference, text)
                if lines:
                    self._lines(lines)
                if not self._send():
                    self._frame(0, '')
            else:
                self._send()

    def tick(self) -> None:
        """Send again what nobody acknowledged."""
        with self._lock:
            self._send()

    def _send(self) -> bool:
        pieces = self._sender.due(time.monotonic())
        for number, text in pieces:
            self._frame(number, text)
        return bool(pieces)

    def _frame(self, number: int, text: str) -> None:
        term, epoch = id_ = self._plan()
        if id_ == NO_PLAN:
            return  # it is sent again
        body = {'stream': self.number, 'ack': self._receiver.acknowledged}
        with contextlib.suppress(ValueError):  # no channel is left for it: it is sent again
            self._channel.send(self.peer, Control(ControlKind.LINES, term, epoch, number,
                                                  {**body, 'text': text} if text else body))


def stream_of(frame: object) -> int:
    """
    Return the number of the stream that a frame is of.

    :raises MalformedFrameError: if it carries no lines.
    """
    if not isinstance(frame, Control) or frame.kind is not ControlKind.LINES:
        raise MalformedFrameError('a frame that carries no lines', 'kind')
    number = frame.body.get('stream')
    if type(number) is not int or not 0 <= number < MAX_NUMBER:
        raise MalformedFrameError('lines of no stream', 'stream')
    return number
