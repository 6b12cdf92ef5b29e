# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""
Seals of what is announced to anyone who wants it: profiles and books.

They are latched, so they may be older than the receiver, and may have been recorded: with a key
none is taken whose sender did not answer a question of the receiver's (`wire/freshness.py`).  For
`topic` there are `topic/questions` and `topic/answers`, with a key only.
"""
from __future__ import annotations

from array import array
from collections.abc import Callable, Mapping
from copy import copy
import struct
import threading
import time
from typing import Any

from rclpy.clock import Clock
from rclpy.clock_type import ClockType
from rclpy.node import Node
from rclpy.qos import QoSProfile

from intradp_ros.core.limits import MAX_BOOK_TEXT, MAX_MODEL_TEXT, MESSAGE_MARGIN
from intradp_ros.core.shared_key import is_mac, mac_of, SharedKey
from intradp_ros.core.steady import Steady
from intradp_ros.msg import AnnouncementQuestion, DeviceState, OperatorProfile, ScheduleBook
from intradp_ros.nodes.common.lifecycle import ManagedNode
from intradp_ros.nodes.common.receiving import Receiver
from intradp_ros.wire import freshness
from intradp_ros.wire.freshness import Question, Said, Verdict
from intradp_ros.wire.handshake import drawn

#: Bytes of a message, serialised.
MAX_BYTES: Mapping[type, int] = {OperatorProfile: 2 * MAX_MODEL_TEXT + MESSAGE_MARGIN,
                                 ScheduleBook: MAX_BOOK_TEXT + MESSAGE_MARGIN}
#: What is lost of these is asked for again.
QUESTIONS, ANSWERS = QoSProfile(depth=64), QoSProfile(depth=10)


class Announcer:
    """Numbers what a node announces, and seals it if there is a key; safe from any thread."""

    def __init__(self, key: SharedKey | None = None) -> None:
        self._key, self._state, self._lock = key, freshness.Speaker(drawn()), threading.Lock()
        self._newest: dict[Any, Any] = {}

    def announce(self, publisher: Any, message: Any) -> None:
        """Publish a message with its number and seal."""
        with self._lock:
            name = _sender(message)
            self._state, said = freshness.said(self._state, name)
            self._publish(publisher, message, said)
            if self._key:
                self._newest[name] = copy(message)
                for forgotten in self._newest.keys() - self._state.current.keys():
                    del self._newest[forgotten]

    def answer_on(self, node: ManagedNode, receiver: Receiver, kind: type, topic: str) -> None:
        """Answer who asks about what is announced on a topic, until the node cleans up."""
        if self._key is None:
            return
        answers = node.publish_on(kind, f'{topic}/answers', ANSWERS)
        questions = receiver.subscribe(
            AnnouncementQuestion, f'{topic}/questions', lambda m: self._answer(answers, m),
            QUESTIONS, 'question', MESSAGE_MARGIN)
        node.until_cleanup.callback(node.destroy_subscription, questions)

    def _answer(self, publisher: Any, message: AnnouncementQuestion) -> None:
        assert self._key is not None
        if not is_mac(message.mac, _mac_of_question(self._key, message)):
            raise ValueError('a question that was not sealed with our key')
        with self._lock:
            self._state, name, said = freshness.asked(self._state, Question(
                message.asker, message.question, message.run, message.sequence))
            if said and name in self._newest:
                self._publish(publisher, copy(self._newest[name]), said)

    def _publish(self, publisher: Any, message: Any, said: Said) -> None:
        message.run, message.sequence = said.run, said.sequence
        message.asker, message.question = said.asker, said.question
        if self._key:
            message.mac = array('B', _mac(self._key, message))
        publisher.publish(message)


class AnnouncementCheck:
    """Checks what others announce; takes everything without a key."""

    def __init__(self, key: SharedKey | None = None) -> None:
        self._key, self._state = key, freshness.Listener(drawn())
        self._asks: list[Callable[[AnnouncementQuestion], None]] = []

    def ask_on(self, node: Node, receiver: Receiver, kind: type, topic: str,
               take: Callable[[Any], None], cause: str) -> Callable[[], None]:
        """
        Ask the senders of a topic whether they run; `take` gets the answers, to be checked, too.

        Returns what ends that.  Senders that do not answer are rejected (`cause`).
        """
        if self._key is None:
            return lambda: None
        publisher = node.create_publisher(AnnouncementQuestion, f'{topic}/questions', QUESTIONS)
        answers = receiver.subscribe(kind, f'{topic}/answers', take, ANSWERS, cause,
                                     MAX_BYTES[kind])
        steady = Steady('asking senders', node.get_logger().error)
        timer = node.create_timer(
            freshness.AGAIN / 2,
            lambda: steady.do(lambda: self._ask_again(receiver, cause), None),
            clock=Clock(clock_type=ClockType.STEADY_TIME))
        self._asks.append(publisher.publish)

        def end() -> None:
            self._asks.remove(publisher.publish)
            node.destroy_timer(timer)
            node.destroy_subscription(answers)
            node.destroy_publisher(publisher)

        return end

    def __call__(self, message: Any) -> bool:
        """
        Return whether to take a message: not before its sender has answered.

        :raises ValueError: if it has no seal, not the right one, or is older than one that was
            here.
        """
        if self._key is None:
            return True
        kind = type(message).__name__
        if not is_mac(message.mac, _mac(self._key, message)):
            raise ValueError(f'{kind} {"" if len(message.mac) else "without a seal, "}that was '
                             'not sealed with our key: give its sender the same key_file')
        self._state, verdict, question = freshness.heard(
            self._state, _sender(message),
            Said(message.run, message.sequence, message.asker, message.question),
            time.monotonic())
        if question:
            self._ask(question)
        if verdict is Verdict.OLD:
            raise ValueError(f'{kind} that is {verdict.value}')
        return verdict is Verdict.TAKEN

    def _ask_again(self, receiver: Receiver, cause: str) -> None:
        self._state, questions, in_vain = freshness.due(self._state, time.monotonic())
        for question in questions:
            self._ask(question)
        for name in in_vain:
            assert isinstance(name, tuple)
            receiver.reject(cause, f'{" ".join(filter(None, name))} was announced by a process '
                            'that does not answer: it has ended, or is a recording')

    def _ask(self, question: Question) -> None:
        assert self._key is not None
        message = AnnouncementQuestion(asker=question.asker, question=question.number,
                                       run=question.run, sequence=question.sequence)
        message.mac = array('B', _mac_of_question(self._key, message))
        for ask in self._asks:
            ask(message)


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


def _mac_of_question(key: SharedKey, message: AnnouncementQuestion) -> bytes:
    return mac_of(key.derived('AnnouncementQuestion'), (struct.pack(
        '<4Q', message.asker, message.question, message.run, message.sequence),))


def _mac(key: SharedKey, message: Any) -> bytes:
    texts = [text.encode('utf-8', 'surrogatepass') for text in _TEXTS[type(message)](message)]
    number = message.delay if isinstance(message, OperatorProfile) else float(message.epoch)
    head = struct.pack(f'<4Qd{len(texts)}I', message.run, message.sequence, message.asker,
                       message.question, number, *map(len, texts))
    return mac_of(key.derived(f'{type(message).__name__} 2'), (head, *texts))


def _sender(message: Any) -> tuple[str, ...]:
    """Return under what name something was announced: one that is newer takes its place."""
    if isinstance(message, OperatorProfile):
        return type(message).__name__, message.role, message.name, message.digest
    return type(message).__name__, message.digest, message.robot


_TEXTS: Mapping[type, Callable[[Any], tuple[str, ...]]] = {
    OperatorProfile: lambda m: (m.role, m.name, m.digest, m.device, m.graph, m.profile),
    ScheduleBook: lambda m: (m.digest, m.robot, m.book)}
