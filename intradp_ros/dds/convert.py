# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""
ROS messages to frames and back.

What comes from the network is checked field by field before a frame is made
of it.  Byte fields are only ever set from `array.array`: anything else is
checked element by element by some versions of rclpy, a tenth of a second for
a megabyte.
"""
from __future__ import annotations

from array import array
import json
from typing import Any

from std_msgs.msg import Header

from intradp_ros.core.json_text import parse_json
from intradp_ros.core.limits import MAX_BODIES, MAX_BODY, MAX_DIMENSIONS
from intradp_ros.link.chunk_size import MAX_CHUNK_BYTES
from intradp_ros.msg import SessionControl, TensorChunk
from intradp_ros.wire.codecs.names import ENCODINGS
from intradp_ros.wire.dtypes import decode_dtype
from intradp_ros.wire.frames import Chunk, Control, ControlKind, MalformedFrameError, Stamp

MAX_FRAME_ID = 1024
MAX_NANOSECONDS = 999_999_999


def chunk_to_message(chunk: Chunk, sequence: int) -> TensorChunk:
    """Return the message of a chunk; `sequence` is the name by which it is acknowledged."""
    data = array('B')
    data.frombytes(chunk.data)
    return TensorChunk(
        header=header_from_stamp(chunk.stamp), session=chunk.session, server=chunk.server,
        epoch=chunk.epoch, inference=chunk.inference, schedule=chunk.schedule,
        transfer=chunk.transfer, value=chunk.value, start=chunk.start, stop=chunk.stop,
        chunk=chunk.chunk, count=chunk.count, sequence=sequence, dtype_code=chunk.dtype_code,
        dtype_bits=chunk.dtype_bits,
        codec=chunk.codec, shape=array('I', chunk.shape), data=data)


def chunk_from_message(message: TensorChunk) -> Chunk:
    """
    Return the chunk that a message carries; its data shares the message's memory.

    :raises MalformedFrameError: if a field is impossible whatever the schedule.  (What the
        schedule says is compared when the chunk is put together with others.)
    """
    _check_chunk(message)
    return Chunk(
        session=message.session, epoch=message.epoch, inference=message.inference,
        schedule=message.schedule, transfer=message.transfer, value=message.value,
        start=message.start, stop=message.stop, chunk=message.chunk, count=message.count,
        dtype_code=message.dtype_code, dtype_bits=message.dtype_bits, codec=message.codec,
        shape=tuple(message.shape), data=message.data, stamp=stamp_from_header(message.header),
        server=message.server)


def header_from_stamp(stamp: Stamp) -> Header:
    """Return the header of a message that answers a sensor message."""
    header = Header(frame_id=stamp.frame_id)
    header.stamp.sec = stamp.sec
    header.stamp.nanosec = stamp.nanosec
    return header


def stamp_from_header(header: Header) -> Stamp:
    """
    Return the stamp of a header.

    :raises MalformedFrameError: if there is no such time, or the frame id is overlong.
    """
    if header.stamp.nanosec > MAX_NANOSECONDS or len(header.frame_id) > MAX_FRAME_ID:
        raise MalformedFrameError(
            f'a header with {header.stamp.nanosec} ns and a frame id of '
            f'{len(header.frame_id)} characters', 'header')
    return Stamp(header.stamp.sec, header.stamp.nanosec, header.frame_id)


def _check_chunk(message: TensorChunk) -> None:
    decode_dtype(message.dtype_code, message.dtype_bits)
    limits = (
        ('size', len(message.data) <= MAX_CHUNK_BYTES, len(message.data)),
        ('index', message.chunk < message.count, (message.chunk, message.count)),
        ('region', message.start <= message.stop, (message.start, message.stop)),
        ('shape', len(message.shape) <= MAX_DIMENSIONS, len(message.shape)),
        ('codec', message.codec < len(ENCODINGS), message.codec))
    for cause, possible, value in limits:
        if not possible:
            raise MalformedFrameError(f'a chunk with {cause} {value}', cause)


def control_to_message(control: Control, sequence: int) -> SessionControl:
    """
    Return the message of a control frame; `sequence` is its number among those of this side.

    :raises ValueError: if the body is not a JSON object of finite numbers, or is too long.
    """
    try:
        body = json.dumps(dict(control.body), separators=(',', ':'), allow_nan=False)
    except TypeError as error:
        raise ValueError(
            f'the body of {control.kind.name} is not a JSON object: {error}') from error
    most = _longest_body(control.kind)
    if len(body) > most:
        raise ValueError(f'the body of {control.kind.name} has {len(body)} characters, '
                         f'more than the {most} that it may carry')
    return SessionControl(kind=int(control.kind), session=control.session, server=control.server,
                          epoch=control.epoch, inference=control.inference, sequence=sequence,
                          body=body)


def control_from_message(message: SessionControl) -> Control:
    """
    Return the control frame that a message carries.

    :raises MalformedFrameError: if the kind is unknown, or the body is overlong or no JSON object.
    """
    try:
        kind = ControlKind(message.kind)
    except ValueError:
        raise MalformedFrameError(f'a control frame of kind {message.kind}', 'kind') from None
    return Control(kind, message.session, message.epoch, message.inference,
                   _parse_body(message.body, _longest_body(kind)), message.server)


def _longest_body(kind: ControlKind) -> int:
    return MAX_BODIES.get(kind.name, MAX_BODY)


def _parse_body(text: str, most: int) -> dict[str, Any]:
    if len(text) > most:
        raise MalformedFrameError(f'a body of {len(text)} characters', 'body')
    try:
        body = parse_json(text, constant=_refuse_constant)
    except ValueError as error:
        raise MalformedFrameError(f'a body that is not JSON: {error}', 'body') from error
    if not isinstance(body, dict):
        raise MalformedFrameError('a body that is not a JSON object', 'body')
    return body


def _refuse_constant(name: str) -> None:
    raise ValueError(f'{name} is not a JSON number')
