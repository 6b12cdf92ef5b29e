# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""Profiles over DDS with a key: recordings, restarts of either side, clocks that went back."""
from __future__ import annotations

from pathlib import Path
import sys
import threading
import time
from typing import Any

from node_processes import LATCHED, own_domain, TIMEOUT
import pytest
import rclpy
from rclpy.serialization import serialize_message
from stranger import spinning
from waiting import wait_for

from intradp_lab.emulation.processes import Child, starter
from intradp_ros.core.limits import MAX_BOOK_TEXT, MAX_MODEL_TEXT, MESSAGE_MARGIN
from intradp_ros.core.processes import Command
from intradp_ros.core.shared_key import SharedKey
from intradp_ros.msg import AnnouncementQuestion, OperatorProfile, ScheduleBook
from intradp_ros.nodes.common.announcement_seals import MAX_BYTES
from intradp_ros.nodes.common.receiving import Receiver

SCRIPT = str(Path(__file__).with_name('announcing.py'))
TOPICS = {'operator_profiles': (OperatorProfile, LATCHED),
          'operator_profiles/answers': (OperatorProfile, 10),
          'operator_profiles/questions': (AnnouncementQuestion, 64)}
YEARS = 1e8


class Recorder:
    """Hears everything, and says it again."""

    def __init__(self, node: Any) -> None:
        self.recorded: list[tuple[str, Any]] = []
        self.lock = threading.Lock()
        self.publishers = {topic: node.create_publisher(kind, topic, qos)
                           for topic, (kind, qos) in TOPICS.items()}
        for topic, (kind, qos) in TOPICS.items():
            node.create_subscription(kind, topic, lambda m, t=topic: self._hear(t, m), qos)

    def _hear(self, topic: str, message: Any) -> None:
        with self.lock:
            if (topic, message) not in self.recorded:
                self.recorded.append((topic, message))

    def wait_for(self, text: str) -> None:
        """Wait until a profile with this text was recorded."""
        wait_for(lambda: any(getattr(message, 'profile', '') == text
                             for _, message in self.recorded), TIMEOUT, lambda: self.recorded)

    def say_all(self, times: int = 2) -> None:
        """Say all that was recorded, the last first, too."""
        with self.lock:
            known = list(self.recorded)
        for _ in range(times):
            for topic, message in (*known, *reversed(known)):
                self.publishers[topic].publish(message)


def taken(child: Child) -> list[str]:
    return [line.removeprefix('took ') for line in child.output().splitlines()
            if line.startswith('took ')]


def test_recordings_restarts_and_clocks(tmp_path: Path) -> None:
    SharedKey.generate().save(tmp_path / 'key')
    with own_domain(tmp_path), starter(tmp_path / 'logs') as start:
        context = rclpy.Context()
        rclpy.init(context=context)
        node = rclpy.create_node('recorder', context=context)
        recorder = Recorder(node)

        def begin(name: str, *words: str) -> Child:
            return start(Command(name, [sys.executable, SCRIPT, str(tmp_path / 'key'), *words]))

        with spinning(node):
            old = begin('old', 'say', 'old', str(YEARS))
            first = begin('first', 'hear')
            first.wait_for_line('took old$', TIMEOUT)
            recorder.wait_for('old')
            old.kill()
            recorder.say_all()
            # Its clock is years behind that of the one before, and of the recordings.
            new = begin('new', 'say', 'new', str(-YEARS))
            first.wait_for_line('took new$', TIMEOUT)
            recorder.wait_for('new')
            recorder.say_all()
            # One that knows nobody hears recordings, latched ones too, of both.
            second = begin('second', 'hear')
            second.wait_for_line('took new$', TIMEOUT)
            recorder.say_all()
            time.sleep(1.0)
            assert new.returncode is None
        assert set(taken(second)) == {'new'}
        heard = [text.removesuffix(' at first') for text in taken(first)]
        assert heard == sorted(heard, reverse=True) and taken(first)[-1] == 'new'
        context.try_shutdown()


def test_a_message_of_another_release_is_named(context: rclpy.Context) -> None:
    node = rclpy.create_node('receiver_of_old', context=context)
    receiver = Receiver(node)
    whole = serialize_message(ScheduleBook(epoch=1, digest='d', robot='/a', book='b'))
    receiver._take(ScheduleBook, whole[:-36], pytest.fail, 'book', 1e6)
    assert 'is its sender of another release?' in receiver.last
    node.destroy_node()


LONGEST_NAME, MAC = '/' + 'n' * 254, [255] * 16


@pytest.mark.parametrize(('message', 'field'), [
    (OperatorProfile(role='server', name=LONGEST_NAME, digest='d' * 64, device='m' * 1024,
                     graph='g' * MAX_MODEL_TEXT, profile='p' * MAX_MODEL_TEXT, mac=MAC), 'graph'),
    (ScheduleBook(digest='d' * 64, robot=LONGEST_NAME, book='b' * MAX_BOOK_TEXT, mac=MAC), 'book'),
])
def test_the_longest_texts_leave_room_for_names(context: rclpy.Context, message: Any,
                                                field: str) -> None:
    node = rclpy.create_node('receiver_of_long_texts', context=context)
    receiver, kind, taken = Receiver(node), type(message), []
    receiver._take(kind, serialize_message(message), taken.append, 'text', MAX_BYTES[kind])
    assert taken == [message]
    setattr(message, field, getattr(message, field) + 'x' * MESSAGE_MARGIN)
    receiver._take(kind, serialize_message(message), taken.append, 'text', MAX_BYTES[kind])
    assert len(taken) == 1 and 'bytes, at most' in receiver.last
    node.destroy_node()
