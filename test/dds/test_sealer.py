# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""With a key nothing is taken but what a holder of it sent, for this session, once."""
from __future__ import annotations

from array import array
from copy import deepcopy
from functools import partial
from typing import Any

import pytest
from rclpy.serialization import deserialize_message, serialize_message

from intradp_ros.core.shared_key import MAC_BYTES, SharedKey
from intradp_ros.dds.endpoint import FREE_AFTER, MAX_KNOWN, SenderIdentity
from intradp_ros.dds.sealer import MAX_PINGING, Sealer
from intradp_ros.msg import ChunkAck, OperatorProfile, ScheduleBook, SessionControl, TensorChunk
from intradp_ros.nodes.common.announcement_seals import AnnouncementCheck, Announcer
from intradp_ros.wire.frames import MalformedFrameError

KEY = SharedKey.generate()
MESSAGES = [
    TensorChunk(session=5, server=7, sequence=3, shape=array('I', [1, 2]), data=array('B', b'ab')),
    SessionControl(kind=9, session=5, server=7, sequence=3, body='{"robot": 1.0}'),
    ChunkAck(session=5, server=7, sequence=3, bytes=10, received_ns=1, rate=2.0)]
ANNOUNCED = [OperatorProfile(role='robot', name='/a', digest='d', graph='g', profile='p'),
             ScheduleBook(epoch=1, digest='d', robot='/a', book='b')]


def ends(key: SharedKey | None = KEY) -> tuple[Sealer, Sealer]:
    """Return a robot's end and a server's."""
    return Sealer(key, 'up', 'down'), Sealer(key, 'down', 'up')


def over_dds(message: Any) -> Any:
    return deserialize_message(bytes(serialize_message(message)), type(message))


def other(value: Any) -> Any:
    """Return another value of a field."""
    if isinstance(value, str):
        return value + 'x'
    if isinstance(value, array):
        return array(value.typecode, [*value, 1])
    return value + 1


def cause(sealer: Sealer, message: Any) -> str:
    """Return why a message is refused, empty if it is taken."""
    try:
        sealer.check(message)
    except MalformedFrameError as error:
        return error.cause
    return ''


@pytest.mark.parametrize('message', MESSAGES, ids=lambda m: type(m).__name__)
def test_what_was_sealed_is_taken_once(message: Any) -> None:
    robot, server = ends()
    sealed = over_dds(robot.seal(deepcopy(message)))
    assert len(sealed.mac) == MAC_BYTES and cause(server, sealed) == ''
    acknowledgement = isinstance(message, ChunkAck)  # the window knows what was acknowledged
    assert cause(server, sealed) == ('' if acknowledgement else 'replayed')
    assert cause(robot, sealed) == 'forged'  # the other way
    assert cause(ends(SharedKey.generate())[1], sealed) == 'forged'
    assert cause(server, message) == 'unsealed'
    assert cause(ends(None)[1], message) == cause(ends(None)[1], sealed) == ''


@pytest.mark.parametrize('message', MESSAGES, ids=lambda m: type(m).__name__)
def test_every_field_is_sealed(message: Any) -> None:
    robot, server = ends()
    sealed = robot.seal(deepcopy(message))
    for name in message.get_fields_and_field_types():
        changed = deepcopy(sealed)
        if name == 'header':
            changed.header.frame_id = 'x'
        elif name == 'mac':
            changed.mac[3] ^= 1
        else:
            setattr(changed, name, other(getattr(changed, name)))
        assert cause(server, changed) == 'forged', name
    assert cause(server, sealed) == ''


def test_seals_of_a_stamp() -> None:
    robot, server = ends()
    for name in ('sec', 'nanosec'):
        changed = robot.seal(deepcopy(MESSAGES[0]))
        setattr(changed.header.stamp, name, 1)
        assert cause(server, changed) == 'forged'


class Topic:
    """What was published."""

    def __init__(self) -> None:
        self.sent: list[Any] = []

    def publish(self, message: Any) -> None:
        self.sent.append(over_dds(message))


@pytest.mark.parametrize('message', ANNOUNCED, ids=lambda m: type(m).__name__)
def test_announcements(message: Any) -> None:
    """Sealed, every field of them; taken when the sender has answered, and then no older one."""
    topic, answers, questions = Topic(), Topic(), Topic()
    check, announcer = AnnouncementCheck(KEY), Announcer(KEY)
    check._asks.append(questions.publish)
    for _ in range(2):
        announcer.announce(topic, deepcopy(message))
    old, new = topic.sent
    assert not check(old) and not check(new) and not check(new) and len(questions.sent) == 2
    for question in questions.sent * 2:
        announcer._answer(answers, question)
    (answer,) = answers.sent  # to the newest alone, once
    for good in (answer, new, answer):
        assert check(good)
    with pytest.raises(ValueError, match='older'):
        check(old)
    with pytest.raises(ValueError, match='not sealed with our key'):
        AnnouncementCheck(SharedKey.generate())(new)
    with pytest.raises(ValueError, match='without a seal'):
        check(message)
    assert AnnouncementCheck()(message)
    assert not AnnouncementCheck(KEY)(answer)  # of a question that another asked
    for sealed, take in ((new, check), (questions.sent[0], partial(announcer._answer, answers))):
        for name in set(sealed.get_fields_and_field_types()) - {'mac'}:
            changed = deepcopy(sealed)
            setattr(changed, name, other(getattr(changed, name)))
            with pytest.raises(ValueError, match='not sealed with our key'):
                take(changed)


def test_a_number_belongs_to_whoever_spoke_under_it_first() -> None:
    """Until that one was silent for a while; a flood of numbers changes nothing."""
    speakers = SenderIdentity()
    assert speakers.admits(5, b'a', 0.0) and not speakers.admits(5, b'b', 1.0)
    assert speakers.admits(5, b'a', 1.5) and speakers.admits(5, b'', 1.5)
    for number in range(10, 10 + 2 * MAX_KNOWN):
        assert speakers.admits(number, b'b', 1.5) == (number < 9 + MAX_KNOWN)
    assert not speakers.admits(5, b'b', 1.5 + FREE_AFTER)
    assert speakers.admits(5, b'b', 1.6 + FREE_AFTER)
    assert not speakers.admits(5, b'a', 1.7 + FREE_AFTER)


def test_recorded_pings_make_no_recording_new() -> None:
    """Those of however many sessions: what was here before stays known."""
    robot, server = ends()
    chunk = robot.seal(deepcopy(MESSAGES[0]))
    assert cause(server, chunk) == ''
    for session in range(100, 100 + 2 * MAX_PINGING):
        ping = robot.seal(SessionControl(kind=9, session=session, sequence=8))
        assert cause(server, ping) == ''
    assert cause(server, chunk) == 'replayed'
    assert cause(server, robot.seal(SessionControl(kind=9, session=session, sequence=7))) \
        == 'replayed'  # it was sent before the first that came: to a server that ran before
