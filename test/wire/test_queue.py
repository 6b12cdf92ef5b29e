# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""The order of frames that wait, and the count of those refused."""
from __future__ import annotations

from pathlib import Path
import re

import pytest
import torch

from intradp_ros.split.regions.region import Region
from intradp_ros.wire.cutting import cut_into_chunks
from intradp_ros.wire.frames import Chunk, Control, ControlKind, Stamp
from intradp_ros.wire.queue import FrameQueue, payload_bytes
from intradp_ros.wire.rejections import MAX_CAUSES, Rejections
from intradp_ros.wire.sanitise import MAX_QUOTED, quoted

MESSAGE = Path(__file__).parents[2] / 'msg' / 'SessionControl.msg'


def chunks_of(inference: int, session: int = 1) -> list[Chunk]:
    """Return three chunks of 4 bytes."""
    return list(cut_into_chunks(torch.zeros(3), session=session, epoch=1, inference=inference,
                                schedule=0, transfer=0, value=0, region=Region(0, 3),
                                chunk_bytes=4))


def test_control_overtakes_chunks_and_each_keeps_its_order() -> None:
    """First all control frames, then all chunks."""
    queue = FrameQueue()
    chunks = chunks_of(1)
    ping, bye = Control(ControlKind.PING), Control(ControlKind.BYE)
    for frame in (chunks[0], ping, chunks[1], bye, chunks[2]):
        queue.put(frame)
    assert queue.next() is ping
    order = [queue.pop() for _ in range(len(queue))]
    assert order == [ping, bye, *chunks]
    assert queue.next() is None
    with pytest.raises(IndexError):
        queue.pop()


def test_the_most_urgent_chunk_leaves_first() -> None:
    """Equals keep their order; what was abandoned in between changes nothing."""
    queue = FrameQueue()
    early, late, middle, gone = (chunks_of(number) for number in (1, 2, 3, 4))
    for urgency, chunks in ((2.0, late), (0.5, gone), (1.0, early), (1.5, middle)):
        for chunk in chunks:
            queue.put(chunk, urgency)
    assert queue.urgency(1) == 0.5
    queue.abandon(1, 4)
    assert queue.urgency(1) == 1.0
    assert [queue.pop() for _ in range(len(queue))] == [*early, *middle, *late]
    assert queue.waiting == 0


def test_sessions_take_turns_and_show_their_first_chunks() -> None:
    queue = FrameQueue()
    ours, theirs = chunks_of(1), chunks_of(2, 7)
    for chunk in (*ours, *theirs):
        queue.put(chunk)
    assert list(queue.heads()) == [ours[0], theirs[0]]
    assert queue.pop() is ours[0]
    assert list(queue.heads()) == [theirs[0], ours[1]]
    assert queue.pop_chunk(1) is ours[1]
    assert list(queue.heads()) == [theirs[0], ours[2]]


def test_abandoning_takes_only_that_inference() -> None:
    """Chunks of other inferences and sessions, and control frames, stay."""
    queue = FrameQueue()
    for frame in (*chunks_of(1), Control(ControlKind.PING), *chunks_of(2), *chunks_of(1, 7)):
        queue.put(frame)
    assert queue.abandon(1, 1) == 3
    assert len(queue) == 7
    assert queue.abandon(1, 1) == 0


def test_payload_is_that_of_chunks() -> None:
    """Only tensor bytes count as payload."""
    assert payload_bytes(chunks_of(1)[0]) == 4
    assert payload_bytes(Control(ControlKind.PING)) == 0


def test_rejections_are_all_counted_and_seldom_logged() -> None:
    """In 2.5 s one line at once and one a second later for each cause, however many come."""
    rejections = Rejections()
    logged = [rejections.count(cause, now=i * 0.01)
              for i in range(250) for cause in ('size', 'dtype')]
    assert rejections.by_cause() == {'size': 250, 'dtype': 250}
    assert rejections.total == 500
    assert sum(logged) == 2 * 2


def test_causes_without_end_do_not_fill_memory() -> None:
    """Causes beyond the limit share a count."""
    rejections = Rejections()
    for number in range(1000):
        rejections.count(str(number), now=0.0)
    assert rejections.total == 1000
    assert len(rejections.by_cause()) == MAX_CAUSES + 1


def test_kinds_have_the_numbers_of_the_message() -> None:
    """Two names of one number would be one kind."""
    constants = re.findall(r'^uint8 ([A-Z_]+)=(\d+)', MESSAGE.read_text(), re.MULTILINE)
    assert {name: int(number) for name, number in constants} == dict(ControlKind.__members__)
    assert len(ControlKind) == len(constants)


def test_what_a_frame_leaves_out_is_zero_as_in_a_message() -> None:
    assert Control(ControlKind.PING) == Control(ControlKind.PING, 0, 0, 0, {}, 0)
    assert Stamp() == Stamp(0, 0, '')
    assert (chunks_of(1)[0].stamp, chunks_of(1)[0].server) == (Stamp(), 0)


def test_what_a_stranger_wrote_is_logged_on_one_line_in_ascii() -> None:
    assert quoted('all of it') == 'all of it'
    assert quoted('two\nlines, \u00e9') == r'two\nlines, \xe9'
    assert quoted('x' * MAX_QUOTED) == 'x' * MAX_QUOTED
    assert quoted('x' * (MAX_QUOTED + 1)) == 'x' * MAX_QUOTED + ' ...'
    nested: list[object] = []
    for _ in range(5000):
        nested = [nested]
    assert quoted(nested).startswith('list: maximum recursion')
    assert quoted(10 ** 5000).startswith('int: Exceeds the limit')
