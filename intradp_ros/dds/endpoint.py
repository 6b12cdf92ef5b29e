# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""
A ROS node of its own whose messages are received on a thread of its own.

An executor would share its thread with timers and services and costs several
times as much for each message.  Messages are taken serialised and then
deserialised, so that what cannot be deserialised is seen and counted.  Who
sent them is what the middleware knows of the sender.
"""
from __future__ import annotations

from asyncio import run
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from functools import partial
import threading
import time
from typing import Any

from rclpy.context import Context
from rclpy.impl.implementation_singleton import rclpy_implementation
from rclpy.node import Node
from rclpy.parameter import Parameter
from rclpy.publisher import Publisher
from rclpy.qos import QoSProfile
from rclpy.qos_overriding_options import QoSOverridingOptions
from rclpy.serialization import deserialize_message
from rclpy.subscription import Subscription

from intradp_ros.core.limits import MAX_BODIES, MESSAGE_MARGIN
from intradp_ros.core.steady import Steady

#: The end of the context is noticed after this many nanoseconds at the latest.
_LOOK_UP = 200_000_000
#: Seconds between two looks for QoS events: with every message they would cost as much as it does.
_EVENTS = 1.0
#: Seconds of rest when nothing could be received.
_REST = 0.05
#: Messages of one topic that are handled before another topic gets its turn.
_TURN = 16
#: Bytes of a serialised message; larger ones are dropped before anything is made of them.
MAX_MESSAGE = max(MAX_BODIES.values()) + MESSAGE_MARGIN
#: Seconds of silence after which somebody else may take a number.
FREE_AFTER = 2.0
MAX_KNOWN = 64
_FAST_DDS = 'rmw_fastrtps'
_PARTICIPANT = 12  # leading bytes of a GUID that all writers of a participant share (RTPS 9.3.1)


def participant_of(info: Mapping[str, Any]) -> bytes:
    """Return who published a message, from what `take` says of it; empty if that is unknown."""
    gid = info.get('publisher_gid')
    if not isinstance(gid, dict) or not gid['implementation_identifier'].startswith(_FAST_DDS):
        return b''
    return bytes(gid['data'][:_PARTICIPANT])


class SenderIdentity:
    """
    Numbers (of sessions, or of servers) with the participant that spoke under them first.

    Another participant is not heard under them until that one was silent for
    `FREE_AFTER` seconds.  This needs no key, and keeps off anyone who uses the
    middleware as it is; not one who forges its datagrams.
    """

    def __init__(self) -> None:
        self._known: dict[int, tuple[bytes, float]] = {}

    def admits(self, number: int, participant: bytes, now: float) -> bool:
        """Return whether a participant may speak under a number, at `now` (seconds); 0 is free."""
        if not participant or not number:
            return True
        first, heard = self._known.get(number, (participant, now))
        if first != participant and now - heard <= FREE_AFTER:
            return False
        if number not in self._known and len(self._known) >= MAX_KNOWN and not self._forget(now):
            return False
        self._known[number] = participant, now
        return True

    def _forget(self, now: float) -> bool:
        """Make room by dropping those that are silent; return whether there is room."""
        self._known = {n: (p, heard) for n, (p, heard) in self._known.items()
                       if now - heard <= FREE_AFTER}
        return len(self._known) < MAX_KNOWN


@dataclass(frozen=True, slots=True)
class Arrival:
    """
    When a message was sent and when it was complete here, in ns, and who sent it.

    `sent` is on the sender's wall clock, `received` on this side's monotonic
    clock.  (The middleware's own time of reception is that of the first
    fragment, or of the last, as the transport has it.)  `sender` is the
    participant, empty where the middleware does not say.
    """

    sent: int
    received: int
    sender: bytes = b''


@dataclass(frozen=True, slots=True)
class _Inlet:
    subscription: Subscription[Any]
    kind: type
    handler: Callable[[Any, Arrival], None]


class Endpoint:
    """
    Publishers and subscriptions of a node that no executor spins.

    Subscribe before `start`; handlers are called on the receive thread.
    `undecodable` is called there with the error when bytes are not a message,
    `failed` with what a handler raises.
    """

    def __init__(
        self, context: Context, node_name: str, *, namespace: str,
        undecodable: Callable[[Exception], None], failed: Callable[[Exception], None],
        parameter_overrides: Sequence[Parameter[Any]] = (),
    ) -> None:
        # Arguments of the process that rename "the" node would give all nodes the same name.
        # Nobody spins the node, so that it could not answer as a service either.
        self.node = Node(
            node_name, context=context, namespace=namespace, use_global_arguments=False,
            start_parameter_services=False, parameter_overrides=[
                Parameter('start_type_description_service', value=False), *parameter_overrides])
        self._context = context
        self._undecodable = undecodable
        self._failed = failed
        self._inlets: list[_Inlet] = []
        self._stop = self.node.create_guard_condition(lambda: None)
        self._stopping = False
        self._thread = threading.Thread(target=self._run, name=node_name, daemon=True)

    def publisher(self, kind: type, topic: str, qos: QoSProfile) -> Publisher[Any]:
        """Create a publisher; parameters of the node can override its QoS."""
        return self.node.create_publisher(
            kind, topic, qos,
            qos_overriding_options=QoSOverridingOptions.with_default_policies())

    def subscribe(
        self, kind: type, topic: str, qos: QoSProfile, handler: Callable[[Any, Arrival], None],
    ) -> None:
        """Create a subscription; parameters of the node can override its QoS."""
        subscription = self.node.create_subscription(
            kind, topic, lambda message: None, qos, raw=True,
            qos_overriding_options=QoSOverridingOptions.with_default_policies())
        self._inlets.append(_Inlet(subscription, kind, handler))

    def start(self) -> None:
        """Begin to receive."""
        self._thread.start()

    def close(self) -> None:
        """Stop receiving and destroy the node; not to be called by a handler."""
        self._stopping = True
        if self._thread.is_alive():
            if self._context.ok():
                self._stop.trigger()
            self._thread.join()
        self.node.destroy_node()

    def _run(self) -> None:
        waitables = list(self.node.waitables)
        context: Any = self._context.handle
        used = (context, self._stop.handle, *(i.subscription.handle for i in self._inlets),
                *waitables)
        with suppress(rclpy_implementation.InvalidHandle), ExitStack() as in_use:
            for handle in used:  # else the end of the context destroys them while they are read
                in_use.enter_context(handle)
            messages = rclpy_implementation.WaitSet(len(self._inlets), 1, 0, 0, 0, 0, context)
            events = rclpy_implementation.WaitSet(0, 0, 0, 0, 0, len(waitables), context)
            looked, steady = 0.0, Steady(self._thread.name)
            while not self._stopping and self._context.ok():
                if not steady.do(partial(self._serve, messages), False):
                    time.sleep(_REST)
                if (now := time.monotonic()) - looked >= _EVENTS:
                    looked = now
                    steady.do(partial(_take_events, events, waitables), None)

    def _serve(self, wait_set: Any) -> bool:
        """Wait for what comes and handle it; return that this was done."""
        wait_set.clear_entities()
        for inlet in self._inlets:
            wait_set.add_subscription(inlet.subscription.handle)
        wait_set.add_guard_condition(self._stop.handle)
        wait_set.wait(_LOOK_UP)
        for index, inlet in enumerate(self._inlets):
            if wait_set.is_ready('subscription', index):
                self._receive(inlet)
        return True

    def _receive(self, inlet: _Inlet) -> None:
        """Handle a few of the messages that are there; the wait set wakes for the rest."""
        for _ in range(_TURN):
            taken = inlet.subscription.handle.take_message(inlet.kind, True)
            if taken is None:
                return
            self._handle(inlet, *taken)

    def _handle(self, inlet: _Inlet, data: bytes, info: Any) -> None:
        arrival = Arrival(info['source_timestamp'], time.monotonic_ns(), participant_of(info))
        try:
            if len(data) > MAX_MESSAGE:
                raise ValueError(f'a {inlet.kind.__name__} of {len(data)} bytes')
            message: Any = deserialize_message(data, inlet.kind)
        except Exception as error:  # noqa: BLE001 - rclpy has no common class for these
            self._undecodable(error)
            return
        try:
            inlet.handler(message, arrival)
        except Exception as error:  # noqa: BLE001 - the thread must go on
            self._failed(error)


def _take_events(wait_set: Any, waitables: Sequence[Any]) -> None:
    """Handle the QoS events that are there: their default callbacks log a warning."""
    wait_set.clear_entities()
    for waitable in waitables:
        waitable.add_to_wait_set(wait_set)
    wait_set.wait(0)
    for waitable in waitables:
        if waitable.is_ready(wait_set):
            run(waitable.execute(waitable.take_data()))
