# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""What belongs together by its stamps is put together once, whatever is lost or late."""
from __future__ import annotations

import random

from hypothesis import given, settings
from hypothesis import strategies as st

from intradp_ros.perception.approximate_time import ApproximateTime

PERIOD, SLOP = 0.1, 0.04


@settings(max_examples=200)
@given(topics=st.integers(1, 4), frames=st.integers(1, 30), seed=st.integers(0, 2**20))
def test_frames_of_cameras_that_tick_together(topics: int, frames: int, seed: int) -> None:
    """In any order of arrival that keeps each topic's, no topic more than the depth behind."""
    random_number = random.Random(seed)
    together = ApproximateTime[tuple[int, int]](topics, SLOP, depth=frames)
    left, sets = [*range(topics)] * frames, []
    random_number.shuffle(left)
    number = [0] * topics
    for topic in left:
        frame = number[topic]
        number[topic] += 1
        stamp = frame * PERIOD + random_number.uniform(0, SLOP / 2)
        if found := together.take(topic, stamp, (topic, frame)):
            sets.append(found)
    assert sets == [tuple((topic, frame) for topic in range(topics)) for frame in range(frames)]
    assert together.unmatched == 0


@settings(max_examples=200)
@given(seed=st.integers(0, 2**20), depth=st.integers(1, 5))
def test_sets_are_close_in_order_and_of_messages_used_once(seed: int, depth: int) -> None:
    random_number = random.Random(seed)
    together, used, before = ApproximateTime[tuple[int, float]](3, SLOP, depth), set(), [-1.0] * 3
    clocks, taken = [0.0] * 3, 0
    for _ in range(200):
        topic = random_number.randrange(3)
        clocks[topic] += random_number.choice((0.0, 0.01, PERIOD, 5 * PERIOD))
        found = together.take(topic, clocks[topic], (_, clocks[topic]))
        taken += 1
        if found:
            stamps = [stamp for _, stamp in found]
            assert max(stamps) - min(stamps) <= SLOP
            assert all(new >= old for new, old in zip(stamps, before))
            assert not used & {*found}
            used |= {*found}
            before = stamps
        assert all(len(of.waiting) <= depth for of in together._topics)
    waiting = sum(len(of.waiting) for of in together._topics)
    assert len(used) + together.unmatched + waiting == taken


def test_a_frame_that_one_camera_lost_is_left_out() -> None:
    together = ApproximateTime[str](2, SLOP)
    assert together.take(0, 0.0, 'a0') is None
    assert together.take(0, 0.1, 'a1') is None
    assert together.take(1, 0.11, 'b1') == ('a1', 'b1')
    assert together.unmatched == 1


def test_the_latest_that_fits_is_taken() -> None:
    together = ApproximateTime[str](2, SLOP)
    for stamp, name in ((0.0, 'early'), (0.03, 'right')):
        together.take(0, stamp, name)
    assert together.take(1, 0.031, 'b') == ('right', 'b') and together.unmatched == 1


def test_a_recording_that_begins_anew() -> None:
    together = ApproximateTime[str](2, SLOP)
    together.take(0, 50.0, 'old')
    assert together.take(0, 1.0, 'a') is None
    assert together.take(1, 1.0, 'b') == ('a', 'b') and together.unmatched == 1
    assert together.take(1, 0.5, 'b0') is None
    assert together.take(0, 0.5, 'a0') == ('a0', 'b0')


@settings(max_examples=100)
@given(topics=st.integers(2, 4), frames=st.integers(12, 40), seed=st.integers(0, 2**20),
       places=st.integers(1, 2), share=st.sampled_from((0.1, 0.2, 0.5)))
def test_images_some_places_late_cost_at_most_themselves(topics: int, frames: int, seed: int,
                                                         places: int, share: float) -> None:
    """Middleware exchanges images of one camera; those of all others still find each other."""
    random_number = random.Random(seed)
    together, sets = ApproximateTime[int](topics, SLOP), []
    order, late, frame = [], set(), 2
    while frame < frames:  # the first ones come in order: nothing is known of a camera before
        behind = random_number.random() < share and frame + places < frames
        later = [*range(frame + 1, frame + 1 + places)] if behind else []
        order += [*later, frame]
        late |= {frame} if behind else set()
        frame += 1 + len(later)
    order = [0, 1, *order]
    for place, mine in enumerate(order):
        for topic in range(topics):
            which = mine if topic == 0 else place
            if found := together.take(topic, which * PERIOD, which):
                sets.append(found)
    assert all(len({*found}) == 1 for found in sets)
    got = [found[0] for found in sets]
    assert got == sorted({*got}) and {*range(frames)} - {*got} <= late


def test_a_clock_that_goes_back_a_little_is_followed() -> None:
    together, sets = ApproximateTime[int](2, SLOP), []
    stamps = [n * PERIOD for n in range(20)] + [1.5 + n * PERIOD for n in range(10)]
    for number, stamp in enumerate(stamps):
        together.take(0, stamp, number)
        if found := together.take(1, stamp, number):
            sets.append(found[0])
    assert sets[:20] == [*range(20)] and {*range(25, 30)} <= {*sets}
