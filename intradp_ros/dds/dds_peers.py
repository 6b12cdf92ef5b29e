# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""
The channels of a fleet over DDS: topics of their own for each pair of devices.

So each pair has its own window, rate and histories, a slow peer holds up
nobody, and access rules by topic can say who may speak to whom.  Chunks to
all peers leave in one order, the most urgent first.
"""
from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import partial
import math
import re
import threading
import time
from typing import Any

from rclpy.context import Context
from rclpy.parameter import Parameter

from intradp_ros.core.limits import MAX_PEERS
from intradp_ros.core.shared_key import SharedKey
from intradp_ros.dds.dds_channel import DdsChannel
from intradp_ros.dds.paths import SharedAir
from intradp_ros.link.chunk_size import LEAST_CHUNK_BYTES
from intradp_ros.runtime.channel import LinkReport
from intradp_ros.runtime.peer_channel import PeerHandler
from intradp_ros.wire.frames import Frame

#: Seconds of silence after which a channel makes room for another.
SILENT = 2.0
_NAME = re.compile(r'[A-Za-z_]\w*', re.ASCII)


def check_name(name: str) -> str:
    """Return the name of a device or a fleet; ValueError if it cannot be part of a topic's."""
    if not _NAME.fullmatch(name):
        raise ValueError(f"a device's name becomes that of topics, got {name!r}: use letters, "
                         'digits and _, a letter first')
    return name


class DdsPeers:
    """
    A device's channels to the others of a fleet; a `PeerChannel`.

    The topics of two devices lie below `<fleet>/<first>/<second>`, names in
    order; the first sends ``up``.  A channel is made by `open`, or by the
    first frame to a peer; there are at most `MAX_PEERS`, whoever names how many
    devices: one whose device is silent makes room for another.  With a `key`
    each pair has a key of its own that is derived from it.  For the rest see
    `DdsChannel`.

    Raises
    ------
    ValueError
        If a name cannot be part of a topic's; by what makes a channel, if
        there are as many as may be, and none of their devices is silent.

    """

    def __init__(self, context: Context, fleet: str, name: str, *, namespace: str = '',
                 chunk_bytes: int = LEAST_CHUNK_BYTES,
                 parameter_overrides: Sequence[Parameter[Any]] = (),
                 key: SharedKey | None = None) -> None:
        self._name, self._fleet = check_name(name), check_name(fleet)
        self._make = partial(DdsChannel, context, namespace=namespace, chunk_bytes=chunk_bytes,
                             parameter_overrides=parameter_overrides, air=SharedAir(), pings=False)
        self._key = key
        self._channels: dict[str, DdsChannel] = {}
        self._heard: dict[str, float] = {}
        self._handler: PeerHandler | None = None
        self._closed = False
        self._lock = threading.Lock()

    @property
    def name(self) -> str:
        """The device whose channel this is."""
        return self._name

    @property
    def peers(self) -> tuple[str, ...]:
        """The devices that there is a channel to."""
        return tuple(self._channels)

    def open(self, peers: Iterable[str]) -> None:
        """Make the channels to some devices, where there are none."""
        for peer in peers:
            if peer != self._name:
                self._channel(peer)

    def send(self, peer: str, frame: Frame, urgency: float = 0.0) -> None:
        """Queue one frame; of chunks to all peers the smallest urgency number leaves first."""
        if not self._closed:
            self._channel(peer).send(frame, urgency)

    def abandon(self, session: int, inference: int) -> None:
        """Drop chunks of a session's inference that still wait, to any peer."""
        for channel in tuple(self._channels.values()):
            channel.abandon(session, inference)

    def chunk_bytes(self, peer: str) -> int:
        """Return the bytes of a chunk, as the way to that peer is now."""
        return self._channel(peer).chunk_bytes

    def listen(self, handler: PeerHandler) -> None:
        """Call `handler` with every frame from now on."""
        self._handler = handler

    def report(self, peer: str) -> LinkReport:
        """Return what is known of the link with a peer now."""
        return self._channel(peer).report()

    def rejected(self) -> Mapping[str, Mapping[str, int]]:
        """Return messages that could not be made into frames, by peer and cause."""
        return {peer: channel.rejected for peer, channel in tuple(self._channels.items())}

    def close(self) -> None:
        """Stop; later sends are ignored."""
        with self._lock:
            self._closed, self._handler = True, None
            channels = tuple(self._channels.values())
        for channel in channels:
            channel.close()

    def _channel(self, peer: str) -> DdsChannel:
        found, silent = self._channels.get(peer), None
        if found is None:
            with self._lock:
                if peer not in self._channels:
                    check_name(peer)
                    silent = self._make_room()
                    self._channels[peer] = self._open(peer)
                found = self._channels[peer]
        if silent:
            silent.close()  # not with the lock: its threads may wait for it
        return found

    def _make_room(self) -> DdsChannel | None:
        """Take out the channel to the device that is silent for the longest time, if need be."""
        if len(self._channels) < MAX_PEERS:
            return None
        silent = min(self._channels, key=lambda peer: self._heard.get(peer, -math.inf))
        if time.monotonic() - self._heard.get(silent, -math.inf) < SILENT:
            raise ValueError(f'{MAX_PEERS} devices speak with {self._name} already, the most that '
                             'it has channels to')
        self._heard.pop(silent, None)
        return self._channels.pop(silent)

    def _open(self, peer: str) -> DdsChannel:
        if self._closed:
            raise ValueError('the channels of this device are closed')
        first, second = sorted((self._name, check_name(peer)))
        name = f'{self._fleet}/{first}/{second}'
        channel = self._make(name, 'robot' if first == self._name else 'server',
                             key=self._key and SharedKey(self._key.derived(f'fleet {name}')))
        channel.listen(partial(self._take, peer))
        return channel

    def _take(self, peer: str, frame: Frame) -> None:
        self._heard[peer] = time.monotonic()
        handler = self._handler
        if handler is not None:
            handler(peer, frame)
