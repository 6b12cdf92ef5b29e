# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""
The channel between robot and server over DDS.

Below the server's name there are four topics for each direction: chunks,
acknowledgements of chunks, control frames, and pings, which need not arrive
(`<name>/chunks_up` and so on; "up" is what the robot publishes).  Every chunk that
arrives is acknowledged at once, with the rate at which chunks arrive; the sender
keeps no more of a session in flight than a window that follows that rate.  So
publishing does not block, a slow robot holds up no other, and what has become useless is dropped
while it still waits.
"""
from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
import re
import threading
import time
import traceback
from typing import Any, NamedTuple

from rclpy.context import Context
from rclpy.duration import Duration
from rclpy.parameter import Parameter

from intradp_ros.core.limits import MAX_RATE
from intradp_ros.core.shared_key import SharedKey
from intradp_ros.dds.convert import (
    chunk_from_message,
    chunk_to_message,
    control_from_message,
    control_to_message,
)
from intradp_ros.dds.endpoint import Arrival, Endpoint, SenderIdentity
from intradp_ros.dds.meeting import Meeting
from intradp_ros.dds.paths import DueFrame, InboundPath, OutboundPath, SharedMedium
from intradp_ros.dds.qos import ack_qos, chunk_qos, control_qos, ping_qos
from intradp_ros.dds.sealer import is_greeting, Sealer
from intradp_ros.dds.tensor_context import end_tensor_context, tensor_context
from intradp_ros.dds.transport_profile import buffer_problem, Transport, transport_in_use
from intradp_ros.link.chunk_size import LEAST_CHUNK_BYTES, MAX_CHUNK_BYTES
from intradp_ros.link.send_window import LONGER_WAY, QUEUE_OF_OTHERS, SendWindow
from intradp_ros.msg import ChunkAck, SessionControl, TensorChunk
from intradp_ros.runtime.transport.channel import LinkReport
from intradp_ros.wire.frames import Chunk, Control, ControlKind, Frame, MalformedFrameError
from intradp_ros.wire.rejections import Rejections
from intradp_ros.wire.sanitise import quoted

#: What each side publishes, and what it subscribes to.
DIRECTIONS: Mapping[str, tuple[str, str]] = {'robot': ('up', 'down'), 'server': ('down', 'up')}
#: How long closing waits for the other side to have the last control frames.
_FAREWELL = Duration(seconds=0.1)
#: Control frames of sessions that are not known yet.
_FIRST = (ControlKind.HELLO, ControlKind.PING)
#: Control frames that the next one of their kind makes up for.
_PINGS = (ControlKind.PING, ControlKind.PONG)
#: Whom a channel of two processes hears, by the participant that spoke first.
_PEER = 1


def check_server_name(name: str) -> None:
    """
    Check that a server's name can be that of topics.

    :raises ValueError: if it cannot.
    """
    if not re.fullmatch(r'/?[A-Za-z_]\w*(/[A-Za-z_]\w*)*', name, re.ASCII):
        raise ValueError(f"a server's name becomes that of topics, got {name!r}: use "
                         'letters, digits and _, with / between words')


class _Publishers(NamedTuple):
    """What one side publishes; where there are no topics for pings they are control frames."""

    chunks: Any
    acks: Any
    control: Any
    pings: Any


class DdsChannel:
    """
    One side of the way between robot and server; a `Channel`.

    It has a ROS node of its own, which nobody spins.  Topics are relative to
    `namespace`.  `transport` must be the one that the process was set up
    for; by default it is what `transport_environment` put into the
    environment.  Chunks have `chunk_bytes`, and more on fast links
    (`link/chunk_size.py`).  With a `key` everything is sealed, and nothing is
    taken that is not (`sealer.py`).  With an `air` its chunks take turns with
    those of other channels of the same sender.  Without `pings` there are
    no topics for them.  With a `meeting` it is that of two processes, which greet each other
    first (`greet`): chunks wait for that, control frames are dropped.
    Call `close` from any thread but the handler's.
    """

    def __init__(
        self, context: Context, name: str = 'offload', side: str = 'robot', *,
        namespace: str = '', chunk_bytes: int = LEAST_CHUNK_BYTES,
        transport: Transport | None = None, parameter_overrides: Sequence[Parameter[Any]] = (),
        key: SharedKey | None = None, air: SharedMedium | None = None, pings: bool = True,
        meeting: Meeting | None = None,
    ) -> None:
        if side not in DIRECTIONS:
            raise ValueError(f'a side is one of {", ".join(DIRECTIONS)}, got {side!r}')
        check_server_name(name)
        if not 0 < chunk_bytes <= MAX_CHUNK_BYTES:
            raise ValueError(f'chunk_bytes must be 1..{MAX_CHUNK_BYTES}, got {chunk_bytes}')
        self._rejections = Rejections()
        self._inbound = InboundPath()
        self._side, self._meeting, self._keyed = side, meeting, key is not None
        self._sealer = Sealer(key, *DIRECTIONS[side], paired=meeting is not None)
        self._speakers = SenderIdentity()
        self._knows: Callable[[int], bool] = lambda session: True
        self._controls = 0
        self.foreign = 0
        self._handler: Callable[[Frame], None] | None = None
        self._closed = False
        self._transport = transport or transport_in_use()
        self._node_context = context
        with tensor_context(context, self._transport) as self._context:
            self._endpoint = Endpoint(
                self._context, re.sub(r'\W+', '_', f'{name}_{side}_channel').strip('_'),
                namespace=namespace, undecodable=self._undecodable, failed=self._failed,
                parameter_overrides=parameter_overrides)
        self._outbound = OutboundPath(partial(
            SendWindow, chunk_bytes, most_chunk_bytes=self._transport.chunk_bytes,
            max_bytes=self._transport.window_bytes, late=self._transport.late,
            others=QUEUE_OF_OTHERS if air else LONGER_WAY,
            repeats=self._transport.reliable), air,
            self._is_awaited if air else (lambda: True))
        try:
            self._open_topics(name, *DIRECTIONS[side], pings)
        except Exception:
            self._outbound.close()
            self._endpoint.close()
            end_tensor_context(self._context, context)
            raise
        if problem := buffer_problem(self._transport):
            self._endpoint.node.get_logger().warning(problem)
        self._endpoint.start()
        self._sender = threading.Thread(target=self._send_frames, name='channel-sender',
                                        daemon=True)
        self._sender.start()

    def send(self, frame: Chunk | Control, urgency: float = 0.0) -> None:
        """Queue one frame; chunks of smaller urgency numbers leave first."""
        self._outbound.put(frame, urgency)

    def greet(self) -> None:
        """Greet the other side if it is time."""
        if self._meeting and (greeting := self._meeting.due(time.monotonic())):
            self.send(greeting)

    def abandon(self, session: int, inference: int) -> None:
        """Drop chunks of a session's inference that still wait in the queue."""
        self._outbound.abandon(session, inference)

    def listen(self, handler: Callable[[Frame], None]) -> None:
        """Call `handler` with every frame from now on."""
        self._handler = handler

    def only(self, knows: Callable[[int], bool]) -> None:
        """
        Take only frames of sessions that `knows` says are known, and what begins one.

        Others are counted (in `foreign`, or by a server as rejected) before
        anything is made of them, and not acknowledged.
        """
        self._knows = knows

    def report(self) -> LinkReport:
        """Return what is known of the link now."""
        sent, (rate, age) = self._outbound.measured(), self._inbound.measured(time.monotonic_ns())
        return LinkReport(
            send_rate=sent.rate, receive_rate=rate, round_trip=sent.round_trip, age=sent.age,
            receive_age=age, bytes_sent=sent.nbytes, bytes_received=self._inbound.nbytes,
            acknowledged=sent.acknowledged)

    @property
    def chunk_bytes(self) -> int:
        """Bytes of a chunk, as the link is now."""
        return self._outbound.chunk_bytes()

    def chunk_bytes_of(self, session: int) -> int:
        """Return the bytes of a chunk of a session, as the way to its robot is now."""
        return self._outbound.chunk_bytes(session)

    @property
    def waiting(self) -> int:
        """Bytes of chunks that wait to be sent."""
        return self._outbound.waiting

    @property
    def rejected(self) -> Mapping[str, int]:
        """Messages that were rejected since the channel was made, by cause."""
        return self._rejections.by_cause()

    @property
    def chunks_lost(self) -> int:
        """Chunks sent that were not acknowledged in time."""
        return self._outbound.measured().lost

    @property
    def peers(self) -> int:
        """Subscribers of the chunks that this side sends."""
        return int(self._out.chunks.get_subscription_count())

    def close(self) -> None:
        """Stop; later sends are ignored."""
        if self._closed:
            return
        self._closed = True
        self._handler = None
        self._outbound.close()
        self._sender.join()
        if self._context.ok() and self._out.control.get_subscription_count():
            self._out.control.wait_for_all_acked(_FAREWELL)
        self._endpoint.close()
        end_tensor_context(self._context, self._node_context)

    def _open_topics(self, name: str, out: str, back: str, pings: bool) -> None:
        chunks, acks, control = chunk_qos(self._transport.reliable), ack_qos(), control_qos()
        endpoint = self._endpoint
        way = endpoint.publisher(SessionControl, f'{name}/control_{out}', control)
        self._out = _Publishers(
            endpoint.publisher(TensorChunk, f'{name}/chunks_{out}', chunks),
            endpoint.publisher(ChunkAck, f'{name}/acks_{out}', acks), way,
            endpoint.publisher(SessionControl, f'{name}/pings_{out}', ping_qos())
            if pings else way)
        if pings:
            endpoint.subscribe(SessionControl, f'{name}/pings_{back}', ping_qos(),
                               self._on_control)
        endpoint.subscribe(SessionControl, f'{name}/control_{back}', control, self._on_control)
        endpoint.subscribe(ChunkAck, f'{name}/acks_{back}', acks, self._on_ack)
        endpoint.subscribe(TensorChunk, f'{name}/chunks_{back}', chunks, self._on_chunk)

    def _send_frames(self) -> None:
        while (outgoing := self._outbound.take()) is not None:
            try:
                self._publish(outgoing)
            except Exception as error:  # one frame that cannot be sent must not end the thread
                if not self._context.ok():
                    self._outbound.close()
                    return
                self._reject('unsendable', f'cannot send a {type(outgoing.frame).__name__}: '
                             f'{quoted(error)}')

    def _is_awaited(self) -> bool:
        """Return whether somebody hears the chunks of this side, and takes them."""
        return self.peers > 0 and (self._meeting is None or self._meeting.connection != 0)

    def _publish(self, outgoing: DueFrame) -> None:
        message: Any
        if isinstance(outgoing.frame, Control):
            self._controls += 1
            message = control_to_message(outgoing.frame, self._controls)
            way = self._out.pings if outgoing.frame.kind in _PINGS else self._out.control
        else:
            message, way = chunk_to_message(outgoing.frame, outgoing.sequence), self._out.chunks
        if self._meeting and not is_greeting(message):
            message.server = self._meeting.connection
            if not message.server:
                return
        way.publish(self._sealer.seal(message))

    def _on_chunk(self, message: TensorChunk, arrival: Arrival) -> None:
        if not self._is_known(message.session):
            return
        chunk = chunk_from_message(message)
        self._check(message, arrival)
        nbytes = len(message.data)
        rate = self._inbound.arrived(chunk.session, nbytes, arrival.sent, arrival.received)
        self._out.acks.publish(self._sealer.seal(ChunkAck(
            session=chunk.session, server=chunk.server, sequence=message.sequence, bytes=nbytes,
            received_ns=arrival.received, rate=rate)))
        self._pass_on(chunk)

    def _on_ack(self, message: ChunkAck, arrival: Arrival) -> None:
        if not 0.0 <= message.rate <= MAX_RATE:
            raise MalformedFrameError(f'an acknowledgement with rate {message.rate}', 'rate')
        if not self._knows(message.session):
            return
        self._check(message, arrival)
        self._outbound.acknowledged(message.session, message.sequence, message.rate)

    def _on_control(self, message: SessionControl, arrival: Arrival) -> None:
        if self._meeting and is_greeting(message):
            self._check(message, arrival)
            answer = self._meeting.take(control_from_message(message), arrival.received * 1e-9)
            if answer:
                self.send(answer)
        elif message.kind in _FIRST or self._is_known(message.session):
            self._check(message, arrival)
            self._pass_on(control_from_message(message))

    def _is_known(self, session: int) -> bool:
        """Return whether a session is known; count the frame if it is not."""
        known = self._knows(session)
        if not known and self._side == 'server':
            self._reject('session', f'session {session:#x} is unknown')
        elif not known:
            self.foreign += 1
        return known

    def _check(self, message: Any, arrival: Arrival) -> None:
        """Raise MalformedFrameError unless a message is of whom it says."""
        now = arrival.received * 1e-9
        if self._meeting:
            self._check_met(self._meeting, message, arrival.sender, now)
            return
        self._sealer.check_seal(message)
        # The ping of a session that is not known changes nothing, and is answered each time.
        if not isinstance(message, SessionControl) or message.kind != ControlKind.PING \
                or self._knows(message.session):
            self._sealer.check_new(message)
        if self._keyed:
            return  # the seal says who speaks: the first to repeat it does not
        number = message.session if self._side == 'server' else message.server
        if not self._speakers.admits(number, arrival.sender, now):
            raise MalformedFrameError(
                f'another process speaks as {number:#x}', 'impostor')

    def _check_met(self, meeting: Meeting, message: Any, sender: bytes, now: float) -> None:
        """As `_check`, of two processes: without a key the one that spoke first is heard."""
        if not self._keyed and not self._speakers.admits(_PEER, sender, now):
            meeting.impostor(now)
            raise MalformedFrameError('another process speaks in the name of the other side',
                                      'impostor')
        self._sealer.check_seal(message)
        if not is_greeting(message):
            meeting.check(type(message).__name__, message.server)
            self._sealer.check_new(message)
            meeting.heard(message.kind if isinstance(message, SessionControl) else 0, now)

    def _pass_on(self, frame: Frame) -> None:
        handler = self._handler
        if handler is not None:
            handler(frame)

    def _undecodable(self, error: Exception) -> None:
        self._reject('undecodable', quoted(error))

    def _failed(self, error: Exception) -> None:
        if isinstance(error, MalformedFrameError):
            self._reject(error.cause, quoted(error))
        elif self._context.ok():
            trace = ''.join(traceback.format_exception(error))
            self._reject('handler', trace.encode('ascii', 'backslashreplace').decode())

    def _reject(self, cause: str, text: str) -> None:
        """Count what could not be used, and log it at most once a second for each cause."""
        if self._rejections.count(cause, time.monotonic()):
            self._endpoint.node.get_logger().warning(f'rejected ({cause}): {text}')
