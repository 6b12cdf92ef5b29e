# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""
The channels of a fleet over DDS: topics of their own for each pair of devices.

So each pair has its own window, rate and histories, a slow peer holds up
nobody, and access rules by topic can say who may speak to whom.  Chunks to
all peers leave in one order, the most urgent first.
"""
from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import partial
import math
from random import Random
import re
import threading
import time

from rclpy.context import Context

from intradp_ros.core.limits import MAX_PEERS
from intradp_ros.core.shared_key import SharedKey
from intradp_ros.core.steady import Steady
from intradp_ros.dds.dds_channel import DdsChannel
from intradp_ros.dds.meeting import Meeting
from intradp_ros.dds.paths import SharedMedium
from intradp_ros.link.chunk_size import LEAST_CHUNK_BYTES
from intradp_ros.runtime.transport.channel import LinkReport
from intradp_ros.runtime.transport.peer_channel import PeerHandler
from intradp_ros.wire.frames import Control, ControlKind, Frame
from intradp_ros.wire.handshake import drawn, EAGER
from intradp_ros.wire.namesake import look, Namesake

#: Seconds of silence after which a channel makes room for another.
SILENT = 2.0
#: Of its own: models and tasks may draw from the process's meanwhile, and count on their order.
_CHANCE = Random()
#: So many characters that the names of two devices and a fleet fit into that of a topic.
_NAME = re.compile(r'[A-Za-z_]\w{0,63}', re.ASCII)


def check_name(name: str) -> str:
    """Return the name of a device or a fleet; ValueError if it cannot be part of a topic's."""
    if not _NAME.fullmatch(name):
        raise ValueError(f"a device's name becomes that of topics, got {name[:80]!r}: use at most "
                         '64 letters, digits and _, a letter first')
    return name


class DdsPeers:
    """
    A device's channels to the others of a fleet; a `PeerChannel`.

    The topics of two devices lie below `<fleet>/<first>/<second>`, names in
    order; the first sends ``up``.  A channel is made by `open`, or by the
    first frame to a peer; there are at most `MAX_PEERS`, however many are named
    devices: one whose device is silent makes room for another, unless it is to stay.  With a `key`
    each pair has a key of its own that is derived from it.  The two processes of a pair greet
    each other first and again and again (`wire/handshake.py`): what was recorded of others is
    not taken.  For the rest see `DdsChannel`.

    :raises ValueError: if a name cannot be part of a topic's; by what makes a channel, if there
        are as many as may be, and none of their devices is silent.
    """

    def __init__(self, context: Context, fleet: str, name: str, *, namespace: str = '',
                 chunk_bytes: int = LEAST_CHUNK_BYTES,
                 key: SharedKey | None = None) -> None:
        self._name, self._fleet = check_name(name), check_name(fleet)
        self._make = partial(DdsChannel, context, namespace=namespace, chunk_bytes=chunk_bytes,
                             air=SharedMedium(), pings=False)
        self._key = key
        self._channels: dict[str, DdsChannel] = {}
        self._meetings: dict[str, Meeting] = {}
        self._staying: set[str] = set()
        self._heard: dict[str, float] = {}
        self._handler: PeerHandler | None = None
        self._closed = False
        self._lock = threading.Lock()
        self._namesake, self._leaving = Namesake(), False
        self._end = threading.Event()
        self._greeter = threading.Thread(target=self._greet, name=f'greeter-{name}', daemon=True)
        self._greeter.start()

    @property
    def name(self) -> str:
        """The device whose channel this is."""
        return self._name

    @property
    def peers(self) -> tuple[str, ...]:
        """The devices that there is a channel to."""
        return tuple(self._channels)

    def met(self) -> frozenset[str]:
        """Return the devices that answer this one's greetings, and were heard lately."""
        now = time.monotonic()
        return frozenset(peer for peer, meeting in tuple(self._meetings.items())
                         if meeting.hears(now))

    def way(self, peer: str) -> str:
        """Return what the topics of this device and another one are below, without the fleet."""
        return '/'.join(sorted((self._name, peer)))

    def open(self, peers: Iterable[str], *, stay: bool = False) -> None:
        """Make the channels to some devices; those that are to `stay` never make room."""
        for peer in peers:
            if peer != self._name:
                if stay:
                    self._staying.add(peer)
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

    def doubted(self, peer: str) -> bool:
        """Return whether another process may have sent what came from a peer lately."""
        meeting = self._meetings.get(peer)
        return meeting is not None and meeting.doubted(time.monotonic())

    def conflicts(self) -> Mapping[str, str]:
        """Return what is known of two processes of one name, by peer; the own name by its text."""
        now, found = time.monotonic(), {}
        for peer, meeting in tuple(self._meetings.items()):
            whose = meeting.conflict(now)
            if whose == 'theirs':
                found[peer] = f'two processes speak as {peer}: ' + (
                    'give one of them another name' if self._key else
                    'give one of them another name, or keep strangers off by a key_file')
            elif whose:
                found[peer] = (f'{peer} hears another process that is named {self._name}, too'
                               f'{", so this one stands aside" if self.aside else ""}: '
                               'give one of them another name')
        return found

    @property
    def aside(self) -> bool:
        """Whether this process leaves its name to another that most of the others hear."""
        return self._namesake.aside

    def close(self) -> None:
        """Stop; later sends are ignored."""
        self._end.set()
        if threading.current_thread() is not self._greeter:
            self._greeter.join()
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
        silent = min(self._channels.keys() - self._staying, default='',
                     key=lambda peer: self._heard.get(peer, -math.inf))
        if not silent or time.monotonic() - self._heard.get(silent, -math.inf) < SILENT:
            raise ValueError(f'{MAX_PEERS} devices speak with {self._name} already, the most that '
                             'it has channels to')
        self._heard.pop(silent, None)
        self._meetings.pop(silent, None)
        return self._channels.pop(silent)

    def _open(self, peer: str) -> DdsChannel:
        if self._closed:
            raise ValueError('the channels of this device are closed')
        name = f'{self._fleet}/{self.way(check_name(peer))}'
        meeting = Meeting(drawn())
        channel = self._make(name, 'robot' if self._name < peer else 'server', meeting=meeting,
                             key=self._key and SharedKey(self._key.derived(f'fleet {name}')))
        self._meetings[peer] = meeting
        channel.listen(partial(self._take, peer))
        return channel

    def _greet(self) -> None:
        steady = Steady('greeting')
        while not self._end.wait(EAGER / 2):
            steady.do(lambda: self._look_for_namesake(time.monotonic()), None)
            for channel in tuple(self._channels.values()):
                steady.do(channel.greet, None)

    def _look_for_namesake(self, now: float) -> None:
        meetings = dict(self._meetings)
        if self._leaving:  # what was said last is on its way
            for meeting in meetings.values():
                meeting.rest(self._namesake.until)
        # Without a key any name may be a stranger's: those count that this process names itself.
        counted = [m for peer, m in meetings.items() if self._key or peer in self._staying]
        heard = sum(meeting.hears(now) for meeting in counted)
        taken = sum(meeting.conflict(now) == 'own' for meeting in counted)
        self._namesake, self._leaving = look(self._namesake, heard, taken, now,
                                             _CHANCE.random())
        if self._leaving:
            for channel in tuple(self._channels.values()):
                channel.send(Control(ControlKind.BYE, 0))

    def _take(self, peer: str, frame: Frame) -> None:
        self._heard[peer] = time.monotonic()
        handler = self._handler
        if handler is not None:
            handler(peer, frame)
