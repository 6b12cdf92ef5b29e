# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""Channels of a fleet: however many devices are named, there are a few."""
from __future__ import annotations

from collections.abc import Iterator
import random
import threading
import time

import pytest
import rclpy

from intradp_ros.core.shared_key import SharedKey
from intradp_ros.dds import dds_peers
from intradp_ros.dds.dds_peers import DdsPeers
from intradp_ros.wire.frames import Control, ControlKind, Frame

MOST = 3
PING = Control(ControlKind.PING, 7, body={'a': 1})


@pytest.fixture
def pair(context: rclpy.Context, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[DdsPeers]]:
    monkeypatch.setattr(dds_peers, 'MAX_PEERS', MOST)
    peers = [DdsPeers(context, 'fleet', name) for name in 'ab']
    yield peers
    for one in peers:
        one.close()


def test_silent_devices_make_room_and_others_stay(pair: list[DdsPeers]) -> None:
    a, b = pair
    heard = threading.Event()

    def hear(peer: str, frame: Frame) -> None:
        heard.set()

    a.listen(hear)
    a.open(['b'])
    while not heard.wait(0.2):  # what is sent before discovery is lost
        b.send('a', PING)
    a.open(f'imagined_{number}' for number in range(10))
    assert len(a.peers) == MOST and 'b' in a.peers
    assert threading.active_count() < 30
    heard.clear()
    while not heard.wait(0.2):
        b.send('a', PING)


def test_devices_that_speak_keep_their_channels(
        pair: list[DdsPeers], monkeypatch: pytest.MonkeyPatch) -> None:
    a, b = pair
    monkeypatch.setattr(dds_peers, 'MAX_PEERS', 1)
    monkeypatch.setattr(dds_peers, 'SILENT', 1e6)
    heard = threading.Event()
    a.listen(lambda peer, frame: heard.set())
    a.open(['b'])
    while not heard.wait(0.2):
        b.send('a', PING)
    with pytest.raises(ValueError, match='1 devices speak with a already'):
        a.open(['c'])
    assert a.peers == ('b',)


def test_channels_draw_nothing_from_the_process(pair: list[DdsPeers]) -> None:
    """Models and tasks may; whether they do is found by the state of its generators."""
    a, b = pair
    before, heard = random.getstate(), threading.Event()
    a.listen(lambda peer, frame: heard.set())
    a.open(['b', 'nobody'])
    while not heard.wait(0.2):
        b.send('a', PING)
    time.sleep(2.0)  # they look whether another process has their name
    assert random.getstate() == before


def test_names_that_no_topic_can_have_leave_nothing_behind(pair: list[DdsPeers]) -> None:
    a = pair[0]
    with pytest.raises(ValueError, match='at most 64 letters'):
        a.open(['x' * 65])
    a._fleet = 'f' * 170  # and names that fit by themselves
    for _ in range(3):
        with pytest.raises(Exception, match='Invalid topic name'):
            a.open(['x' * 64])
    assert not a.peers and not a._meetings and not a._make.keywords['air']._paths
    a._fleet = 'fleet'
    a.open(['b'])
    assert a.peers == ('b',)


def made(context: rclpy.Context, name: str, key: SharedKey | None) -> DdsPeers:
    return DdsPeers(context, 'sealed', name, key=key)


def until_heard(heard: list[str], speaker: DdsPeers) -> None:
    """Speak until it is heard: what is sent before discovery is lost."""
    heard.clear()
    for _ in range(300):
        speaker.send('a', PING)
        time.sleep(0.1)
        if heard:
            return
    raise AssertionError('not heard')


def test_who_has_the_key_is_heard_also_when_started_again(context: rclpy.Context) -> None:
    """Its numbers go on where it was, or it would be taken for a recording."""
    key = SharedKey.generate()
    heard: list[str] = []
    a = made(context, 'a', key)
    a.listen(lambda peer, frame: heard.append(peer))
    a.open(['b'])
    try:
        for _ in range(4):
            b = made(context, 'b', key)
            until_heard(heard, b)
            b.close()
        assert 'replayed' not in a.rejected()['b']
    finally:
        a.close()


def test_who_has_no_key_or_another_pairs_is_not_heard(context: rclpy.Context) -> None:
    key = SharedKey.generate()
    heard: list[str] = []
    a, stranger = made(context, 'a', key), made(context, 'b', None)
    other = made(context, 'b', SharedKey(key.derived('fleet sealed/a/c')))
    a.listen(lambda peer, frame: heard.append(peer))
    a.open(['b'])
    try:
        for _ in range(300):
            stranger.send('a', PING)
            other.send('a', PING)
            time.sleep(0.1)
            if {'unsealed', 'forged'} <= set(a.rejected()['b']):
                break
        assert {'unsealed', 'forged'} <= set(a.rejected()['b']) and not heard
    finally:
        for one in (a, stranger, other):
            one.close()
