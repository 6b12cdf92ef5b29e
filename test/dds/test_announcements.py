# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""Announcements of participants: what Fast DDS really sends, and what strangers may."""
from __future__ import annotations

import os
import socket

from hypothesis import given
from hypothesis import strategies as st
import pytest
import rclpy

from intradp_ros.dds.announcements import GROUP, Listening, read_announcement

#: An announcement of Fast DDS 2.14, of process 12822.
HEARD = bytes.fromhex(
    '525450530202010f010f78fd16328a9a000000000901080000000000000000001505a0010000100000010'
    '0c7000100c2000000000100000000030000500010'
    '00010f78fd16328a9a00000000000001c1'
    '590060000200000012000000696e74726164702e7472616e73706f727400000004000000756470001e000000'
    '666173746464732e706879736963616c5f646174612e70726f6365737300000006000000313238323200000001000000')


def test_what_a_datagram_says() -> None:
    announced = read_announcement(HEARD, '10.0.0.1')
    assert announced is not None
    assert (announced.address, announced.transport) == ('10.0.0.1', 'udp')
    assert announced.process == 12822
    assert announced.participant == bytes.fromhex('010f78fd16328a9a00000000')


@given(st.data())
def test_strangers_bytes_do_no_harm(data: st.DataObject) -> None:
    """Any prefix, and any changed byte: something or None, never an exception."""
    changed = bytearray(HEARD[:data.draw(st.integers(0, len(HEARD)))])
    for _ in range(data.draw(st.integers(0, 8)) if changed else 0):
        changed[data.draw(st.integers(0, len(changed) - 1))] = data.draw(st.integers(0, 255))
    read_announcement(bytes(changed))


def test_a_node_of_this_process_is_heard(domain: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """By multicast, among what else comes; without a profile it names no transport."""
    monkeypatch.delenv('ROS_AUTOMATIC_DISCOVERY_RANGE')
    context = rclpy.Context()
    with Listening(domain) as listening:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as stranger:
            stranger.sendto(b'RTPS nonsense', (GROUP, 7400 + 250 * domain))
        rclpy.init(context=context, domain_id=domain)
        node = rclpy.create_node('heard', context=context)
        own = listening.own(5.0)
    node.destroy_node()
    context.try_shutdown()
    assert own is not None
    assert (own.process, own.transport) == (os.getpid(), '')
