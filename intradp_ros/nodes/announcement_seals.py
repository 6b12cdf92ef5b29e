# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""
Seals of what is announced to whoever wants it: profiles and books.

They are latched, so they may be older than the receiver; but none is taken
that is older than another of the same sender.
"""
from __future__ import annotations

from array import array
from collections import OrderedDict
from collections.abc import Callable, Mapping
import struct
import threading
import time
from typing import Any

from intradp_ros.core.limits import MAX_BOOK_TEXT, MAX_MODEL_TEXT, MESSAGE_MARGIN
from intradp_ros.core.shared_key import is_mac, mac_of, SharedKey
from intradp_ros.msg import DeviceState, OperatorProfile, ScheduleBook

#: Bytes of a message, serialised.
MAX_BYTES: Mapping[type, int] = {OperatorProfile: 2 * MAX_MODEL_TEXT + MESSAGE_MARGIN,
                                 ScheduleBook: MAX_BOOK_TEXT + MESSAGE_MARGIN}
MAX_SENDERS = 256


class Announcer:
    """Numbers what a node announces, and seals it if there is a key; safe from any thread."""

    def __init__(self, key: SharedKey | None = None) -> None:
        self._key, self._last, self._lock = key, 0, threading.Lock()

    def announce(self, publisher: Any, message: Any) -> None:
        """Publish a message with its number and seal."""
        with self._lock:
            self._last = message.sequence = max(self._last + 1, time.time_ns())
            if self._key:
                message.mac = array('B', _mac(self._key, message))
            publisher.publish(message)


class AnnouncementCheck:
    """Checks what others announce; takes everything without a key."""

    def __init__(self, key: SharedKey | None = None) -> None:
        self._key = key
        self._newest: OrderedDict[tuple[str, ...], int] = OrderedDict()

    def __call__(self, message: Any) -> None:
        """
        Check who sent a message, and that it is not older than one that was here.

        Raises
        ------
        ValueError
            If it has no seal, not the right one, or is an old one.

        """
        if self._key is None:
            return
        kind = type(message).__name__
        if not is_mac(message.mac, _mac(self._key, message)):
            raise ValueError(f'{kind} {"" if len(message.mac) else "without a seal, "}that was '
                             'not sealed with our key: give its sender the same key_file')
        sender = kind, *_SENDER[type(message)](message)
        if message.sequence < self._newest.get(sender, 0):
            raise ValueError(f'{kind} that is older than another of its sender')
        self._newest[sender] = message.sequence
        self._newest.move_to_end(sender)
        if len(self._newest) > MAX_SENDERS:
            self._newest.popitem(last=False)


def sealed_name(key: SharedKey | None, fleet: str, message: DeviceState) -> DeviceState:
    """
    Return what a device says of itself, with a seal of its name.

    Nothing else of it is used: a recording only makes the device greeted, and it has to answer.
    """
    if key:
        message.mac = array('B', _mac_of_name(key, fleet, message))
    return message


def check_sealed_name(key: SharedKey | None, fleet: str, message: DeviceState) -> None:
    """Check that a device with our key was named so; ValueError if it was not."""
    if key and not is_mac(message.mac, _mac_of_name(key, fleet, message)):
        raise ValueError(f'a device {"" if len(message.mac) else "without a seal, "}that was not '
                         'sealed with our key: give it the same key_file')


def _mac_of_name(key: SharedKey, fleet: str, message: DeviceState) -> bytes:
    return mac_of(key.derived(f'DeviceState {fleet}'), (message.name.encode(),))


def _mac(key: SharedKey, message: Any) -> bytes:
    texts = [text.encode('utf-8', 'surrogatepass') for text in _TEXTS[type(message)](message)]
    number = message.delay if isinstance(message, OperatorProfile) else float(message.epoch)
    lengths = struct.pack(f'<Qd{len(texts)}I', message.sequence, number, *map(len, texts))
    return mac_of(key.derived(type(message).__name__), (lengths, *texts))


_TEXTS: Mapping[type, Callable[[Any], tuple[str, ...]]] = {
    OperatorProfile: lambda m: (m.role, m.name, m.digest, m.device, m.graph, m.profile),
    ScheduleBook: lambda m: (m.digest, m.robot, m.book)}
_SENDER: Mapping[type, Callable[[Any], tuple[str, ...]]] = {
    OperatorProfile: lambda m: (m.role, m.name, m.digest),
    ScheduleBook: lambda m: (m.digest, m.robot)}
