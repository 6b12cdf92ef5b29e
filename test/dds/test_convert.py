# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""Frames survive as messages; impossible messages are refused, field by field."""
from __future__ import annotations

from array import array
from collections import Counter
from dataclasses import replace
from random import Random
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
import pytest
from rclpy.serialization import deserialize_message, serialize_message

from intradp_ros.core.limits import MAX_BODIES, MAX_BODY, MAX_DIMENSIONS
from intradp_ros.dds.convert import (
    chunk_from_message,
    chunk_to_message,
    control_from_message,
    control_to_message,
    header_from_stamp,
    MAX_FRAME_ID,
    stamp_from_header,
)
from intradp_ros.dds.endpoint import MAX_MESSAGE
from intradp_ros.link.chunk_size import MAX_CHUNK_BYTES
from intradp_ros.msg import SessionControl, TensorChunk
from intradp_ros.wire.frames import Chunk, Control, ControlKind, MalformedFrameError, Stamp

U32, U64 = st.integers(0, 2**32 - 1), st.integers(0, 2**64 - 1)
STAMPS = st.builds(Stamp, st.integers(-2**31, 2**31 - 1), st.integers(0, 10**9 - 1),
                   st.text(st.characters(codec='utf-8', exclude_characters='\0'), max_size=30))
JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-2**60, 2**60) | st.text(max_size=9)
    | st.floats(allow_nan=False, allow_infinity=False),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner,
                                                                max_size=3), max_leaves=8)


@st.composite
def chunks(draw: st.DrawFn) -> Chunk:
    """Draw any chunk that is possible."""
    count = draw(st.integers(1, 2**32 - 1))
    start, stop = sorted((draw(U32), draw(U32)))
    return Chunk(
        session=draw(U64), epoch=draw(U32), inference=draw(U64), schedule=draw(U32),
        transfer=draw(U32), value=draw(U32), start=start, stop=stop,
        chunk=draw(st.integers(0, count - 1)), count=count, dtype_code=2, dtype_bits=32, codec=0,
        shape=tuple(draw(st.lists(U32, max_size=6))), data=draw(st.binary(max_size=300)),
        stamp=draw(STAMPS))


def through_dds(message: Any) -> Any:
    """Serialise and deserialise as the middleware does."""
    return deserialize_message(serialize_message(message), type(message))


@settings(max_examples=150)
@given(chunk=chunks(), sequence=U64)
def test_chunks_round_trip(chunk: Chunk, sequence: int) -> None:
    """Every field of a chunk comes back as it was, and its data without a copy."""
    message = through_dds(chunk_to_message(chunk, sequence))
    assert message.sequence == sequence
    assert isinstance(message.data, array)
    back = chunk_from_message(message)
    assert back.data is message.data
    assert replace(back, data=bytes(back.data)) == chunk


@settings(max_examples=100)
@given(kind=st.sampled_from(ControlKind), session=U64, epoch=U32, inference=U64,
       body=st.dictionaries(st.text(max_size=9), JSON, max_size=4))
def test_control_frames_round_trip(kind, session, epoch, inference, body) -> None:
    """Kind, numbers and any JSON object come back as they were."""
    control = Control(kind, session, epoch, inference, body)
    assert control_from_message(through_dds(control_to_message(control, 3))) == control


def test_the_largest_frames_are_no_larger_than_an_endpoint_takes() -> None:
    """A body or data as long as they may be leave room for all other fields."""
    for kind in ControlKind:
        longest = MAX_BODIES.get(kind.name, MAX_BODY)
        message = control_to_message(Control(kind, 1, 1, 1, {'a': 'x' * (longest - 8)}), 1)
        message.mac = array('B', bytes(16))
        assert len(message.body) == longest and len(serialize_message(message)) <= MAX_MESSAGE
        with pytest.raises(ValueError, match='more than'):
            control_to_message(Control(kind, 1, 1, 1, {'a': 'x' * (longest - 7)}), 1)
    chunk = replace(chunk_from_message(a_chunk()), shape=(1,) * MAX_DIMENSIONS,
                    data=bytes(MAX_CHUNK_BYTES), stamp=Stamp(0, 0, '\u20ac' * MAX_FRAME_ID))
    largest = chunk_to_message(chunk, 1)
    largest.mac = array('B', bytes(16))
    assert chunk_from_message(largest).shape and len(serialize_message(largest)) <= MAX_MESSAGE


@settings(max_examples=50)
@given(stamp=STAMPS)
def test_stamps_round_trip(stamp: Stamp) -> None:
    """The header of an answer is that of the sensor message."""
    assert stamp_from_header(through_dds(header_from_stamp(stamp))) == stamp


def a_chunk() -> TensorChunk:
    """Return a message of a good chunk."""
    return chunk_to_message(Chunk(
        session=1, epoch=1, inference=1, schedule=0, transfer=0, value=0, start=0, stop=4,
        chunk=0, count=2, dtype_code=2, dtype_bits=32, codec=0, shape=(4, 2), data=bytes(16)), 9)


@pytest.mark.parametrize(('field', 'value', 'cause'), [
    ('chunk', 2, 'index'), ('count', 0, 'index'), ('start', 5, 'region'), ('codec', 8, 'codec'),
    ('dtype_code', 3, 'dtype'), ('dtype_bits', 31, 'dtype'),
    ('shape', array('I', [1] * 17), 'shape'),
    ('data', array('B', bytes(MAX_CHUNK_BYTES + 1)), 'size')])
def test_impossible_chunks_are_refused(field: str, value: object, cause: str) -> None:
    """Each impossible field is named as the cause."""
    message = a_chunk()
    setattr(message, field, value)
    with pytest.raises(MalformedFrameError) as error:
        chunk_from_message(message)
    assert error.value.cause == cause


def test_impossible_headers_are_refused() -> None:
    """So are a time and a frame id that cannot be."""
    message = a_chunk()
    message.header.stamp.nanosec = 10**9
    with pytest.raises(MalformedFrameError, match='1000000000 ns'):
        chunk_from_message(message)
    message = a_chunk()
    message.header.frame_id = 'x' * 1025
    with pytest.raises(MalformedFrameError, match='1025 characters'):
        chunk_from_message(message)


@pytest.mark.parametrize('body', [
    '', 'x', '[]', '3', 'null', '{"a":', '{"a": NaN}', '{"a": Infinity}', '{"a": 1e}',
    '[' * 100_000, '{"a":' + '9' * 5000 + '}', '{"a": "\ud800"}'[:-1]])
def test_bodies_that_are_no_json_objects_are_refused(body: str) -> None:
    """Whatever the text, the error is that of a malformed frame."""
    with pytest.raises(MalformedFrameError) as error:
        control_from_message(SessionControl(kind=9, body=body))
    assert error.value.cause == 'body'


@pytest.mark.parametrize('kind', ControlKind)
def test_bodies_are_as_long_as_their_kind_needs(kind: ControlKind) -> None:
    """One character more is neither sent nor taken."""
    most = {'HELLO': 1 << 14, 'WELCOME': 1 << 14, 'BOOK': 1 << 20, 'REPORT': 1 << 20,
            'PREPARE': 1 << 18, 'HEARTBEAT': 1 << 14, 'LINES': 1 << 14}.get(kind.name, 1 << 12)
    body = {'a': 'x' * (most - len('{"a":""}'))}
    message = control_to_message(Control(kind, body=body), 3)
    assert control_from_message(message).body == body
    with pytest.raises(ValueError, match=f'more than the {most}'):
        control_to_message(Control(kind, body={'a': body['a'] + 'x'}), 3)
    message.body += ' '
    with pytest.raises(MalformedFrameError) as error:
        control_from_message(message)
    assert error.value.cause == 'body'


@pytest.mark.parametrize('kind', [0, max(ControlKind) + 1, 255])
def test_unknown_kinds_are_refused(kind: int) -> None:
    """Only the kinds of the protocol pass."""
    with pytest.raises(MalformedFrameError, match=f'kind {kind}'):
        control_from_message(SessionControl(kind=kind, body='{}'))


@pytest.mark.parametrize('body', [{'a': float('inf')}, {'a': object()}, {'a': {1, 2}}])
def test_bodies_that_json_cannot_say_are_not_sent(body: dict[str, object]) -> None:
    """The sender sees a ValueError, not a message that others cannot read."""
    with pytest.raises(ValueError, match='JSON'):
        control_to_message(Control(ControlKind.REPORT, body=body), 3)


def test_kinds_are_those_of_the_message() -> None:
    """The numbers of frames and of the message definition agree."""
    for kind in ControlKind:
        assert getattr(SessionControl, kind.name) == kind


def test_ten_thousand_random_messages() -> None:
    """Random fields give a frame or a MalformedFrameError, and nothing else."""
    random, outcomes = Random(5), Counter[str]()
    for _ in range(10_000):
        message = a_chunk()
        for _ in range(random.randint(0, 3)):
            field = random.choice(('start', 'stop', 'chunk', 'count', 'value', 'transfer'))
            setattr(message, field, random.choice((0, 1, 5, random.randrange(2**32))))
            field = random.choice(('dtype_code', 'dtype_bits', 'codec'))
            setattr(message, field, random.choice((0, 2, 32, random.randrange(256))))
        message.data = array('B', random.randbytes(random.choice((0, 16, 100))))
        control = SessionControl(kind=random.randrange(256), body=''.join(
            random.choices('{}[]":,0123abc\\u ', k=random.randrange(40))))
        for convert, subject in ((chunk_from_message, message), (control_from_message, control)):
            try:
                convert(subject)
                outcomes['good'] += 1
            except MalformedFrameError as error:
                outcomes[error.cause] += 1
    assert sum(outcomes.values()) == 20_000
    assert {'good', 'dtype', 'codec', 'index', 'region', 'kind', 'body'} <= set(outcomes)
