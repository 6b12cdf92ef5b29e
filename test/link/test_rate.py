# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""The rate estimate on simulated links whose true rate is known."""
from __future__ import annotations

from collections.abc import Iterator
import math
from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st
import pytest

from intradp_ros.link.rate import ReceiverRate

NS = 1_000_000_000


def link(
    sends: Iterator[tuple[float, int]], rate: float, delay: float, jitter: float = 0.0,
    offset: int = 0, seed: int = 0,
) -> Iterator[tuple[int, int, int]]:
    """Carry (time, bytes) in order; yield (arrival, bytes, sending time by another clock), ns."""
    random, free = Random(seed), 0.0
    for sent, nbytes in sends:
        free = max(free, sent) + nbytes / rate
        late = random.expovariate(1 / jitter) if jitter else 0.0
        yield int((free + delay + late) * NS), nbytes, int(sent * NS) + offset


def bursts(count: int, chunks: int, nbytes: int, period: float) -> Iterator[tuple[float, int]]:
    """Yield bursts of chunks sent all at once."""
    for burst in range(count):
        for _ in range(chunks):
            yield burst * period, nbytes


@settings(max_examples=60)
@given(mbit=st.floats(1, 400), delay=st.floats(0, 0.05), chunks=st.integers(3, 50),
       nbytes=st.integers(4_000, 60_000), offset=st.integers(-10**15, 10**15))
def test_exact_on_a_clean_link(mbit, delay, chunks, nbytes, offset) -> None:
    """Bursts with idle time between them give the link's rate, not the mean rate."""
    rate = mbit * 125_000
    period = 3 * chunks * nbytes / rate
    estimator, now = ReceiverRate(), 0
    for now, size, sent in link(bursts(4, chunks, nbytes, period), rate, delay, offset=offset):
        estimator.arrived(now, size, sent)
    assert estimator.rate(now) == pytest.approx(rate, rel=0.02)


@settings(max_examples=30)
@given(mbit=st.sampled_from((5, 20, 93)), seed=st.integers(0, 1000),
       chunk_bytes=st.sampled_from((15_000, 30_000)))
def test_within_a_tenth_with_jitter(mbit: int, seed: int, chunk_bytes: int) -> None:
    """Arrivals up to some tenths of a millisecond late move the estimate by less than 10 %."""
    rate = mbit * 125_000
    sends = bursts(8, 130_000 // chunk_bytes + 1, chunk_bytes, 0.3)
    estimator, now = ReceiverRate(), 0
    for now, size, sent in link(sends, rate, 0.003, jitter=1e-4, seed=seed):
        estimator.arrived(now, size, sent)
    assert estimator.rate(now) == pytest.approx(rate, rel=0.1)


@settings(max_examples=40)
@given(seed=st.integers(0, 10_000), delay=st.floats(0.0, 0.02))
def test_idle_gaps_inside_a_burst_do_not_count(seed: int, delay: float) -> None:
    """Chunks that come as they are computed, of different sizes, leave the link idle at times."""
    random, rate = Random(seed), 2_500_000.0

    def computed() -> Iterator[tuple[float, int]]:
        now = 0.0
        for _ in range(12):
            for _ in range(random.randint(1, 9)):
                yield now, random.choice((60_000, 30_000, 30_000, 7_000))
            now += random.uniform(0.0, 0.2)

    estimator, now = ReceiverRate(horizon=10.0), 0
    for now, size, sent in link(computed(), rate, delay):
        estimator.arrived(now, size, sent)
    assert estimator.rate(now) == pytest.approx(rate, rel=0.12)


def test_a_window_of_two_chunks_suffices() -> None:
    """A sender that waits for acknowledgements keeps the link busy, and is measured so."""
    rate, delay, nbytes = 2_500_000.0, 0.001, 30_000
    estimator, free, acknowledged = ReceiverRate(), 0.0, [0.0, 0.0]
    for _ in range(20):
        sent = acknowledged.pop(0)
        free = max(free, sent) + nbytes / rate
        estimator.arrived(int((free + delay) * NS), nbytes, int(sent * NS))
        acknowledged.append(free + 2 * delay)
    assert estimator.rate(int(free * NS)) == pytest.approx(rate, rel=0.02)


@pytest.mark.parametrize(('before', 'after'), [(20e6, 2e6), (2e6, 20e6)])
def test_follows_a_change(before: float, after: float) -> None:
    """Two seconds after the link changed, nothing of the old rate is left."""
    estimator, now = ReceiverRate(), 0
    for now, size, sent in link(bursts(20, 5, 30_000, 0.1), before, 0.002):
        estimator.arrived(now, size, sent)
    assert estimator.rate(now) == pytest.approx(before, rel=0.05)
    sends = ((2.0 + t, n) for t, n in bursts(20, 5, 30_000, 0.1))
    for now, size, sent in link(sends, after, 0.002):
        estimator.arrived(now, size, sent)
    assert estimator.rate(now) == pytest.approx(after, rel=0.05)


def test_an_interruption_is_not_a_rate() -> None:
    """Chunks that waited for a link to come back do not make it look slow."""
    estimator, now, pause = ReceiverRate(), 0, 2.0
    for index, (now, size, sent) in enumerate(link(bursts(3, 5, 30_000, 0.2), 2.5e6, 0.002)):
        now += int(pause * NS) if index >= 7 else 0
        estimator.arrived(now, size, sent)
        assert estimator.rate(now) in (0.0, pytest.approx(2.5e6, rel=0.05))


def test_unknown_without_two_chunks_back_to_back() -> None:
    """Single chunks with pauses say nothing; a burst does; it is remembered."""
    estimator = ReceiverRate()
    for now, size, sent in link(bursts(5, 1, 30_000, 1.0), 1e6, 0.001):
        estimator.arrived(now, size, sent)
        assert estimator.rate(now) == 0.0
    sends = ((9.0 + t, n) for t, n in bursts(1, 4, 30_000, 1.0))
    for now, size, sent in link(sends, 1e6, 0.001):
        estimator.arrived(now, size, sent)
    assert estimator.rate(now + 100 * NS) == pytest.approx(1e6, rel=0.02)


def test_a_sender_slower_than_the_link_is_measured_instead() -> None:
    """Without any queue the estimate is the rate of streaming; rare chunks say nothing still."""
    estimator, now = ReceiverRate(), 0
    sends = ((0.001 * k, 30_000) for k in range(20))
    for now, size, sent in link(sends, 1e9, 0.001):
        estimator.arrived(now, size, sent)
    assert estimator.rate(now) == pytest.approx(30e6, rel=0.05)
    rare, now = ReceiverRate(), 0
    for now, size, sent in link(((0.01 * k, 30_000) for k in range(20)), 1e9, 0.001):
        rare.arrived(now, size, sent)
    assert rare.rate(now) == 0.0


def test_clocks_that_jump_do_no_harm() -> None:
    """Equal and backward arrival times give no infinite or negative rate."""
    estimator, random = ReceiverRate(), Random(3)
    for _ in range(2000):
        now = random.randrange(10 * NS)
        estimator.arrived(now, 1000, random.randrange(-NS, NS))
        assert 0.0 <= estimator.rate(now) < float('inf')


def test_a_few_bytes_tell_nothing() -> None:
    """Small replies one after another take the time of messages, not that of their bytes."""
    estimator, now = ReceiverRate(), 0
    for now, size, sent in link(bursts(20, 4, 32, 0.05), 40e6 / 8, 0.001, jitter=3e-4):
        estimator.arrived(now, size, sent)
    assert estimator.rate(now) == 0.0
    later = ((at + 2.0, nbytes) for at, nbytes in bursts(3, 4, 15_000, 0.05))
    for now, size, sent in link(later, 40e6 / 8, 0.001):
        estimator.arrived(now, size, sent)
    assert estimator.rate(now) == pytest.approx(40e6 / 8, rel=0.1)


def test_what_was_held_back_for_a_lost_message_is_not_a_rate() -> None:
    """A transport that keeps the order delivers at once what came behind a repaired message."""
    rate = 20 * 125_000
    estimator = ReceiverRate()
    highest, held = 0.0, 0
    chunks = link(((k * 0.006, 15_000) for k in range(400)), rate, 0.003)
    for number, (arrival, nbytes, sent) in enumerate(chunks):
        held = arrival + NS // 10 if number % 40 == 20 else held  # it is repeated after 100 ms
        estimator.arrived(max(arrival, held), nbytes, sent)
        highest = max(highest, estimator.rate(max(arrival, held)) if number > 10 else 0.0)
    assert highest < 1.2 * rate


def test_what_is_too_small_to_tell_makes_nothing_new() -> None:
    """Single chunks after a pause leave the estimate as it is, and it grows old."""
    estimator, now = ReceiverRate(), 0
    assert estimator.age(now) == math.inf
    for now, size, sent in link(bursts(4, 5, 30_000, 0.1), 2e6, 0.002):
        estimator.arrived(now, size, sent)
    assert estimator.age(now) == 0.0
    for later in range(1, 20):
        estimator.arrived(now + later * NS // 10, 4000, now + later * NS // 10 - NS // 500)
    assert estimator.rate(now + 2 * NS) == pytest.approx(2e6, rel=0.05)
    assert estimator.age(now + 2 * NS) == pytest.approx(2.0)


def test_after_a_pause_the_first_burst_tells() -> None:
    """What was measured seconds before the newest burst takes no part."""
    estimator, now = ReceiverRate(), 0
    for now, size, sent in link(bursts(20, 5, 30_000, 0.1), 2e6, 0.002):
        estimator.arrived(now, size, sent)
    sends = ((5.0 + t, n) for t, n in bursts(1, 5, 30_000, 0.1))
    for now, size, sent in link(sends, 14e6, 0.002):
        estimator.arrived(now, size, sent)
    assert estimator.rate(now) == pytest.approx(14e6, rel=0.05)
