# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""The send window on simulated links."""
from __future__ import annotations

from collections import deque
import heapq

from hypothesis import given, settings
from hypothesis import strategies as st
import pytest

from intradp_ros.link.chunk_size import (
    chunk_bytes_at,
    LEAST_CHUNK_BYTES,
    MAX_CHUNK_BYTES,
    USUAL_CHUNK_BYTES,
)
from intradp_ros.link.filters import RecentMax, RecentMin
from intradp_ros.link.rate import ReceiverRate
from intradp_ros.link.send_window import (
    INITIAL_CHUNKS,
    MAX_PATIENCE,
    MIN_PATIENCE,
    QUEUE_OF_OTHERS,
    SendWindow,
)

CHUNK = 30_000


def stream(window: SendWindow, rate: float, delay: float, seconds: float) -> tuple[float, int]:
    """
    Send without pause over a link of `rate` bytes/s and a one-way `delay`.

    Return the rate achieved over the second half, and the most bytes queued in it.
    """
    now, free, sequence, queued, landed = 0.0, 0.0, 0, 0, 0
    acks: deque[tuple[float, int, float]] = deque()
    receiver = ReceiverRate()
    while now < seconds:
        while window.fits(CHUNK, now):
            window.sent(sequence, CHUNK, now)
            free = max(free, now) + CHUNK / rate
            arrival = int((free + delay) * 1e9)
            receiver.arrived(arrival, CHUNK, int(now * 1e9))
            acks.append((free + 2 * delay, sequence, receiver.rate(arrival)))
            sequence += 1
            if now > seconds / 2:
                queued = max(queued, int((free - now) * rate))
                landed += CHUNK
        now, acknowledged, seen = acks.popleft()
        assert window.acknowledged(acknowledged, seen, now)
    return landed / (seconds / 2), queued


@settings(max_examples=40)
@given(mbit=st.floats(2, 200), delay=st.floats(0.0, 0.02))
def test_fills_the_link_without_filling_its_queue(mbit: float, delay: float) -> None:
    """Any link is used to at least nine tenths, with a queue of about what the link holds."""
    rate = mbit * 125_000
    window = SendWindow(CHUNK, max_bytes=10_000_000)
    achieved, queued = stream(window, rate, delay, 30.0)
    assert achieved > 0.9 * rate
    assert queued <= 2.2 * (2 * delay * rate + max(CHUNK, 0.005 * rate))
    assert window.lost == 0


@settings(max_examples=100)
@given(data=st.data())
def test_counts_exactly_what_is_in_flight(data: st.DataObject) -> None:
    """Whatever is sent, acknowledged (or not, or twice) and given up, no byte is miscounted."""
    window = SendWindow(CHUNK, max_chunks=5)
    now, flying = 0.0, {}
    for sequence in range(data.draw(st.integers(1, 60))):
        now += data.draw(st.sampled_from((0.0, 0.01, 0.3, 3.0)))
        size = data.draw(st.integers(0, CHUNK))
        if window.fits(size, now):
            window.sent(sequence, size, now)
            flying[sequence] = size
        if data.draw(st.booleans()):
            wanted = data.draw(st.integers(0, sequence + 2))
            assert window.acknowledged(wanted, 1e6, now) == (wanted in flying)
            if flying.pop(wanted, None) is not None:
                flying = {s: n for s, n in flying.items() if s >= wanted - 3}
        if window.expire(now):
            flying = {s: flying[s] for s in window.sequences}
        assert window.in_flight == sum(flying.values())
        assert sorted(window.sequences) == sorted(flying)
        assert len(flying) <= 5


def test_limits() -> None:
    """Four chunks to begin with, never below two, never above the limit."""
    window = SendWindow(CHUNK, max_bytes=200_000)
    assert window.limit(0.0) == INITIAL_CHUNKS * CHUNK
    window.sent(0, CHUNK, 0.0)
    window.acknowledged(0, 1e6, 0.030)
    assert window.limit(0.030) == pytest.approx(2 * CHUNK, rel=0.01)
    window = SendWindow(CHUNK, max_bytes=200_000)
    window.sent(0, CHUNK, 0.0)
    window.acknowledged(0, 1e9, 1.0)
    assert window.limit(1.0) == 200_000


def test_fast_links_get_larger_chunks_and_more_of_them() -> None:
    """A chunk is 12.5 ms of the link up to 30 kB, or 2.5 ms; fast links have several."""
    window = SendWindow(LEAST_CHUNK_BYTES)
    assert window.chunk_bytes == LEAST_CHUNK_BYTES
    sizes = []
    for sequence, rate in enumerate((1e6, 2e6, 10e6, 24e6, 50e6)):
        window.sent(sequence, CHUNK, float(sequence))
        window.acknowledged(sequence, rate, sequence + CHUNK / rate)
        sizes.append(window.chunk_bytes)
    assert sizes == [15_000, 25_000, 30_000, 60_000, USUAL_CHUNK_BYTES]
    assert 500_000 <= window.limit(4.0) <= 600_000


def test_some_transports_may_have_more_in_flight_on_fast_links() -> None:
    usual, more = SendWindow(CHUNK), SendWindow(CHUNK, max_bytes=1_500_000, late=20e-3)
    limits = []
    for sequence, rate in enumerate((2.5e6, 12.5e6, 25e6, 50e6)):
        for window in (usual, more):
            window.sent(sequence, CHUNK, float(sequence))
            window.acknowledged(sequence, rate, sequence + CHUNK / rate)
        limits.append(more.limit(sequence + 0.1) / usual.limit(sequence + 0.1))
    assert limits == [1.0, 1.0, pytest.approx(2.0, rel=0.05), pytest.approx(3.0, rel=0.2)]


def test_some_transports_get_even_larger_chunks() -> None:
    window = SendWindow(LEAST_CHUNK_BYTES, most_chunk_bytes=MAX_CHUNK_BYTES)
    window.sent(0, CHUNK, 0.0)
    window.acknowledged(0, 48e6, CHUNK / 48e6)
    assert window.chunk_bytes == 120_000
    assert chunk_bytes_at(1e9, most=MAX_CHUNK_BYTES) == MAX_CHUNK_BYTES
    assert chunk_bytes_at(1e6, least=100_000) == 100_000


def test_a_rate_that_was_too_high_is_not_believed_for_long() -> None:
    """A burst that came at once sets the window only until the next rate is reported."""
    window = SendWindow(LEAST_CHUNK_BYTES)
    for sequence, rate in enumerate((100e6, 10e6)):
        window.sent(sequence, CHUNK, 0.1 * sequence)
        window.acknowledged(sequence, rate, 0.1 * sequence + CHUNK / rate)
    assert window.rate(0.2) == 100e6
    assert window.chunk_bytes == 30_000
    assert window.limit(0.2) < 150_000


def test_one_chunk_may_always_be_sent() -> None:
    """A chunk larger than the window does not wait for ever."""
    window = SendWindow(100)
    assert window.fits(10**9, 0.0)
    window.sent(0, 10**9, 0.0)
    assert not window.fits(1, 0.0)


def test_round_trip_is_that_of_an_empty_chunk() -> None:
    """The time of the chunk's own bytes is taken off, and the least sample counts."""
    window = SendWindow(CHUNK)
    for sequence, wait in enumerate((0.050, 0.034, 0.080)):
        window.sent(sequence, CHUNK, float(sequence))
        window.acknowledged(sequence, CHUNK / 0.030, sequence + wait)
    assert window.round_trip(2.0) == pytest.approx(0.004, rel=0.05)


def test_silence_frees_the_window_ever_more_slowly() -> None:
    """Lost acknowledgements do not block for ever; a dead link is not flooded."""
    window, now, sequence, freed = SendWindow(CHUNK), 0.0, 0, []
    while now < 20.0:
        while window.fits(CHUNK, now):
            window.sent(sequence, CHUNK, now)
            sequence += 1
        if window.expire(now):
            freed.append(now)
        now += 0.01
    waits = [b - a for a, b in zip(freed, freed[1:])]
    assert freed[0] == pytest.approx(MIN_PATIENCE, abs=0.02)
    assert all(b >= a - 0.02 for a, b in zip(waits, waits[1:]))
    assert max(waits) == pytest.approx(MAX_PATIENCE, abs=0.02)
    assert window.lost == sequence - len(window.sequences)
    while not window.fits(CHUNK, now):
        now += 0.1
        window.expire(now)
    window.sent(sequence, CHUNK, now)
    window.acknowledged(sequence, 1e6, now + 0.04)
    assert window.patience(now + 0.04) < 0.4


def test_silence_frees_one_chunk_at_a_time_where_the_transport_repeats() -> None:
    """What the transport holds grows by a chunk a silence; an answer to that one all but three."""
    window, now, sequence = SendWindow(CHUNK, repeats=True), 0.0, 0
    while window.fits(CHUNK, now):
        window.sent(sequence, CHUNK, now)
        sequence += 1
    first = sequence
    while now < 5.0:
        now += 0.01
        window.expire(now)
        while window.fits(CHUNK, now):
            window.sent(sequence, CHUNK, now)
            sequence += 1
    assert first > 2
    assert 3 <= window.lost == sequence - first <= 5  # after 0.2, 0.4, 0.8, 1.6 and 2 s
    window.acknowledged(sequence - 1, 1e6, now)
    assert window.in_flight <= 3 * CHUNK


def test_a_chunk_overtaken_is_given_up_at_once() -> None:
    """One lost acknowledgement among many does not shrink the window."""
    window = SendWindow(CHUNK, max_bytes=10**7)
    for sequence in range(INITIAL_CHUNKS):
        window.sent(sequence, CHUNK, 0.0)
    for sequence in range(1, 8):
        window.acknowledged(sequence, 1e6, 0.01 * sequence)
        window.sent(sequence + 3, CHUNK, 0.01 * sequence)
    assert 0 not in window.sequences
    assert window.lost == 1


def test_filters() -> None:
    """The largest of the last seconds, the last one if all are older, and the aged smallest."""
    largest = RecentMax(2.0)
    assert largest.value(0.0) is None
    for now, value in ((0.0, 9.0), (1.0, 5.0), (1.5, 7.0), (1.6, 2.0)):
        largest.update(value, now)
    assert [largest.value(t) for t in (1.6, 2.5, 3.55, 99.0)] == [9.0, 7.0, 2.0, 2.0]
    smallest = RecentMin(2.0)
    assert smallest.value(0.0) is None
    for now, value in ((0.0, 3.0), (1.0, 5.0), (1.5, 4.0)):
        smallest.update(value, now)
    assert [smallest.value(t) for t in (1.5, 2.5, 99.0)] == [3.0, 4.0, 4.0]


def test_the_round_trip_is_measured_anew_when_the_path_never_runs_empty() -> None:
    """A path that got longer is believed after ten seconds of streaming, and the window grows."""
    window = SendWindow(CHUNK, max_bytes=10**7)
    before, _ = stream(window, 12.5e6, 0.001, 5.0)
    assert window.round_trip(5.0) == pytest.approx(0.002, abs=0.0005)
    shift = SendWindow(CHUNK, max_bytes=10**7)
    shift.sent(0, CHUNK, -11.0)
    shift.acknowledged(0, 12.5e6, -11.0 + CHUNK / 12.5e6 + 0.002)
    after, _ = stream(shift, 12.5e6, 0.030, 20.0)
    assert after > 0.9 * 12.5e6
    assert shift.round_trip(20.0) == pytest.approx(0.060, abs=0.005)


def share(senders: int, rate: float, delay: float, seconds: float, others: float,
          ) -> tuple[float, float]:
    """
    Send without pause by several senders over one queue of `rate` bytes/s and a one-way `delay`.

    Return the rate of all over the last quarter, and the most seconds of waiting in it.
    """
    windows = [SendWindow(LEAST_CHUNK_BYTES, others=others) for _ in range(senders)]
    receivers = [ReceiverRate() for _ in windows]
    events: list[tuple[float, int, str, int, int, float]] = []
    now, free, numbers, waited, landed = 0.0, 0.0, 0, 0.0, 0
    while now < seconds:
        late = now > 0.75 * seconds
        for sender, window in enumerate(windows):
            while window.fits(window.chunk_bytes, now):
                size = window.chunk_bytes
                window.sent(numbers, size, now)
                waited = max(waited, free - now) if late else 0.0
                landed += size if late else 0
                free = max(free, now) + size / rate
                heapq.heappush(events, (free + delay, numbers, 'chunk', sender, size, now))
                numbers += 1
        now, number, what, sender, size, seen = heapq.heappop(events)
        if what == 'chunk':
            arrival = int(now * 1e9)
            receivers[sender].arrived(arrival, size, int(seen * 1e9))
            heapq.heappush(events, (now + delay, number, 'ack', sender, 0,
                                    receivers[sender].rate(arrival)))
        else:
            windows[sender].acknowledged(number, seen, now)
    return landed / (seconds / 4), waited


@settings(max_examples=8)
@given(senders=st.integers(2, 3), mbit=st.floats(10, 20), delay=st.floats(0.0005, 0.005))
def test_windows_do_not_grow_by_each_others_queues(senders: int, mbit: float, delay: float,
                                                   ) -> None:
    """Senders that never rest on one air fill it, and their queue does not grow for ever."""
    rate = mbit * 125_000
    achieved, waited = share(senders, rate, delay, 40.0, QUEUE_OF_OTHERS)
    assert achieved > 0.95 * rate
    assert waited < 0.25


def test_impossible_settings_are_refused() -> None:
    """The error names the values."""
    with pytest.raises(ValueError, match='got 0, 2.0, 200'):
        SendWindow(0)


def full_window(window: SendWindow, first: int, now: float) -> list[int]:
    """Send what fits; return the chunks."""
    sequences = []
    while window.fits(CHUNK, now):
        window.sent(first + len(sequences), CHUNK, now)
        sequences.append(first + len(sequences))
    return sequences


@pytest.mark.parametrize('repeats', [True, False])
def test_late_acknowledgements_make_a_window_start_anew_where_the_transport_repeats(
        repeats: bool) -> None:
    """Two chunks after an acknowledgement in 0.8 s; then as many more as come in time."""
    window, rate, now = SendWindow(CHUNK, repeats=repeats), 2.5e6, 0.0
    window.sent(0, CHUNK, now)
    assert window.acknowledged(0, rate, now + 0.07)
    usual = window.limit(now + 0.07)
    assert usual > 8 * CHUNK
    flight = full_window(window, 1, now := 0.1)
    assert window.acknowledged(flight[0], rate, now := 0.9)
    assert window.limit(now) == (2 * CHUNK if repeats else usual)
    if not repeats:
        return
    for sequence in flight[1:]:  # as late: sent before
        window.acknowledged(sequence, rate, now)
    assert window.in_flight == 0 and window.limit(now) == 2 * CHUNK
    counts, following = [], flight[-1] + 1
    for _ in range(5):
        flight = full_window(window, following, now)
        counts.append(len(flight))
        following += len(flight)
        now += 0.07
        for sequence in flight:
            assert window.acknowledged(sequence, rate, now)
    assert counts == [2, 4, 8, usual // CHUNK, usual // CHUNK]


def test_silence_counts_from_the_oldest_chunk_in_flight_or_the_last_acknowledgement() -> None:
    """A way that had nothing to send was not silent."""
    window = SendWindow(CHUNK)
    assert window.silence(5.0) == 0.0
    window.sent(1, CHUNK, 10.0)
    window.sent(2, CHUNK, 11.0)
    assert window.silence(12.0) == 2.0
    window.acknowledged(1, 1e6, 12.0)
    assert window.silence(12.5) == 0.5
