# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""Subscriptions that count what they refuse, and diagnostics that report."""
from __future__ import annotations

from collections.abc import Iterator
import time

from diagnostic_msgs.msg import DiagnosticStatus
import pytest
import rclpy
from rclpy.executors import SingleThreadedExecutor
from rclpy.node import Node
from rclpy.qos import QoSProfile
from rclpy.serialization import serialize_message
from std_msgs.msg import String

from intradp_ros.nodes.common.diagnostics import added, Diagnostics, Status
from intradp_ros.nodes.common.receiving import Receiver

TIMEOUT = 60.0


@pytest.fixture
def node(context: rclpy.Context) -> Iterator[Node]:
    node = rclpy.create_node('receiving', context=context)
    yield node
    node.destroy_node()


def test_every_message_is_taken_or_counted(node: Node, context: rclpy.Context) -> None:
    """Handlers may raise, bytes may be no message: the node goes on."""
    taken: list[str] = []

    def take(message: String) -> None:
        if message.data == 'refuse':
            raise ValueError('not this one')
        if message.data == 'fail':
            raise KeyError('a defect')
        taken.append(message.data)

    receiver = Receiver(node)
    receiver.subscribe(String, 'words', take, QoSProfile(depth=100), 'word')
    publisher = node.create_publisher(String, 'words', 100)
    good = bytes(serialize_message(String(data='a long enough word')))
    executor = SingleThreadedExecutor(context=context)
    executor.add_node(node)
    end = time.monotonic() + TIMEOUT
    while not publisher.get_subscription_count() and time.monotonic() < end:
        executor.spin_once(0.05)
    for data in ('first', 'refuse', 'fail', good[:9], good[:2], b'\xff' * 40, 'last'):
        publisher.publish(data if isinstance(data, bytes) else String(data=data))
    while 'last' not in taken and time.monotonic() < end:
        executor.spin_once(0.05)
    assert taken == ['first', 'last']
    assert receiver.rejections.by_cause() == {'word': 1, 'handler': 1, 'undecodable': 3}


def test_diagnostics_warn_while_messages_are_rejected(node: Node) -> None:
    """Once no more come the status is well again; the counts stay."""
    diagnostics = Diagnostics(node)
    levels = []
    for rejected in ({}, {'size': 2}, {'size': 2}, {'kind': 1, 'size': 2}):
        (status,) = diagnostics.message(
            Status('serving', {'sessions': 1}, rejected)).status
        levels.append(status.level)
    assert levels == [DiagnosticStatus.OK, DiagnosticStatus.WARN, DiagnosticStatus.OK,
                      DiagnosticStatus.WARN]
    assert (status.name, status.message) == ('/receiving', 'serving')
    values = {v.key: v.value for v in status.values}
    assert values.pop('host') and 0 < float(values.pop('host_memory_used_mb')) < float(
        values.pop('host_memory_mb')) and float(values.pop('host_load')) >= 0
    assert values == {'sessions': '1', 'rejected_kind': '1', 'rejected_size': '2'}
    (status,) = diagnostics.message(
        Status('late', {}, {'kind': 1, 'size': 2}, well=False)).status
    assert status.level == DiagnosticStatus.WARN


def test_counts_are_added_by_cause() -> None:
    assert added({'a': 1, 'b': 2}, {}, {'b': 3}) == {'a': 1, 'b': 5}
