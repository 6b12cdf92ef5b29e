# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""Lines over frames that are lost, repeated and overtaken: each arrives once, in order."""
from __future__ import annotations

import random

from hypothesis import given, settings
from hypothesis import strategies as st
import pytest

from intradp_ros.wire.frames import MalformedFrameError
from intradp_ros.wire.line_stream import (
    LineReceiver,
    LineSender,
    MOST_LINE,
    MOST_WAITING,
    PIECE,
    WINDOW,
)


@settings(max_examples=150, deadline=None)
@given(st.lists(st.integers(0, 3 * PIECE), max_size=30), st.floats(0, 0.6),
       st.integers(0, 1 << 30))
def test_lines_arrive_once_and_in_order_whatever_is_lost(lengths, lost, seed) -> None:
    rng = random.Random(seed)
    lines = [f'{k}:' + 'x' * length for k, length in enumerate(lengths)]
    sender, receiver, now = LineSender(), LineReceiver(), 0.0
    waiting, came, flying, acknowledgements = list(lines), [], [], []
    while waiting or not sender.idle:
        now += 0.05
        assert now < 600, 'it never ends'
        if waiting and rng.random() < 0.7:
            sender.put(waiting.pop(0))
        for piece in sender.due(now):
            assert len(piece[1]) <= PIECE
            flying += [piece] * (0 if rng.random() < lost else rng.choice((1, 1, 2)))
        rng.shuffle(flying)
        for _ in range(rng.randint(0, len(flying))):
            came += receiver.take(*flying.pop())
            acknowledgements.append(receiver.acknowledged)
        if acknowledgements and rng.random() > lost:
            sender.acknowledge(rng.choice(acknowledgements))  # late ones, too
    for piece in flying:
        came += receiver.take(*piece)
    assert came == lines


def test_pieces_fill_the_window_and_small_lines_share_one() -> None:
    sender = LineSender()
    for k in range(100):
        sender.put(f'line {k}')
    [(number, text)] = sender.due(0.0)
    assert number == 1 and text.count('\n') == 100 and not sender.due(0.1)
    sender.put('x' * (20 * PIECE))
    assert [number for number, _ in sender.due(0.1)] == list(range(2, WINDOW + 1))
    assert [number for number, _ in sender.due(0.25)] == [1]  # nobody acknowledged it


def test_what_no_sender_would_send_is_refused_and_bounded() -> None:
    receiver = LineReceiver()
    for number, text in ((WINDOW + 1, 'early'), (1, 'x' * (PIECE + 1)), (1, 'é'), (1, '')):
        with pytest.raises(MalformedFrameError):
            receiver.take(number, text)
    assert receiver.take(1, 'well\n') == ['well']
    with pytest.raises(MalformedFrameError):
        for number in range(2, 2 + MOST_LINE // PIECE + 2):
            receiver.take(number, 'x' * PIECE)
    sender = LineSender()
    with pytest.raises(OverflowError):
        for _ in range(MOST_WAITING):
            sender.put('x' * PIECE)
