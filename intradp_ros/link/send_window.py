# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""
How many bytes may be in flight: enough to fill the link, too few to fill its queues.

A transport that is handed more than the link takes either blocks its caller
or drops; both are worse than waiting here, where a chunk that has become
useless can still be withdrawn.  The window is `gain` times what is on its
way or in work: rate x round trip, and the chunk that is just being
serialised, or on fast links those that both sides are busy with.  The
round trip is taken from chunks that found nothing in flight before them;
others also waited in the queue that the window itself allows, and a window
that grows with its own queue never stops growing.  What other senders on the
same air have queued is in every round trip, though, and windows would grow by
each other's until something drops: a window is made for no more than `others`
seconds above the shortest round trip of the last ten minutes.
"""
from __future__ import annotations

from dataclasses import dataclass

from intradp_ros.link.chunk_size import chunk_bytes_at, USUAL_CHUNK_BYTES
from intradp_ros.link.filters import RecentMax, RecentMin

#: Without an acknowledgement for this long, at least, chunks in flight are given up.
MIN_PATIENCE = 0.2
MAX_PATIENCE = 2.0
#: Bytes that may be in flight at most, unless a transport bears more.
USUAL_WINDOW_BYTES = 600_000
#: The window before the first rate is known, in chunks.
INITIAL_CHUNKS = 4
#: A round trip older than this is measured anew, if need be by letting the path run empty.
ROUND_TRIP_MEMORY = 10.0
SHORTEST_MEMORY = 600.0
#: Seconds by which a window may grow for a way that got longer: by much where nobody else is known
#: to send, by little on an air that is known to be shared.
LONGER_WAY, QUEUE_OF_OTHERS = 0.05, 0.01
_REORDER = 3
# No acknowledgement is faster; less only comes of a rate that is estimated too low.
_LEAST_DELAY = 1e-4
# Seconds that busy processes may take over a chunk and its acknowledgement; a fast link carries
# several chunks meanwhile.  By the last rate alone: one that is too high, of a burst, would be
# believed for seconds, and queues longer than 10 ms make a reliable transport repeat in vain.
_HANDLING = 5e-3
# From this rate on (bytes per second) both sides are so busy that they come late now and then.
_FAST = 12.5e6


@dataclass(frozen=True, slots=True)
class _Flying:
    """A chunk in flight; `alone` if it found the path empty."""

    nbytes: int
    sent: float
    alone: bool


class SendWindow:
    """
    Bytes in flight against a limit that follows the measured link.

    Rates are bytes per second, times seconds of any steady clock.  Chunks
    are named by increasing sequence numbers.  A chunk has `chunk_bytes`, and
    on fast links more, up to `most_chunk_bytes`.  Beyond 100 Mbit/s
    both sides may come late by `late` seconds of what exceeds that.  A transport
    that `repeats` what was lost goes on with it through a silence: so one chunk
    makes room then, and not all, or repetitions would become ever more.  And
    where an acknowledgement took longer than a silence that is borne, chunks may
    have been repeated: the window starts anew from two of them and grows by what is
    acknowledged in time, as TCP's slow start does (RFC 5681, section 3.1).  A
    queue that repetitions of a large window keep full takes up little else.
    """

    def __init__(
        self, chunk_bytes: int, *, most_chunk_bytes: int = USUAL_CHUNK_BYTES, gain: float = 2.0,
        max_bytes: int = USUAL_WINDOW_BYTES, max_chunks: int = 200, late: float = 0.0,
        others: float = LONGER_WAY, repeats: bool = False,
    ) -> None:
        if chunk_bytes < 1 or max_chunks < 2 or gain <= 0:
            raise ValueError('chunk_bytes and gain must be positive and max_chunks at least 2, '
                             f'got {chunk_bytes}, {gain}, {max_chunks}')
        self._least_chunk, self._most_chunk = chunk_bytes, most_chunk_bytes
        self._gain = gain
        self._max_bytes = max(max_bytes, 2 * chunk_bytes)
        self._max_chunks, self._late, self._others = max_chunks, late, others
        self._repeats = repeats
        self._congestion_window = float('inf')  # bytes; finite once it started anew
        self._rate = RecentMax(2.0)
        self._delay = RecentMin(ROUND_TRIP_MEMORY)
        self._shortest = RecentMin(SHORTEST_MEMORY)
        self._measured = float('-inf')
        self._flight: dict[int, _Flying] = {}
        self._last_ack = self._freed = float('-inf')
        self._silences = 0
        self.in_flight = 0
        self.last_rate = 0.0
        self.lost = 0

    @property
    def sequences(self) -> tuple[int, ...]:
        """Chunks in flight, in the order in which they were sent."""
        return tuple(self._flight)

    def rate(self, now: float) -> float:
        """Return the largest rate reported in the last seconds; 0.0 if unknown."""
        return self._rate.value(now) or 0.0

    def round_trip(self, now: float) -> float:
        """Return the round trip of an idle path for an empty chunk; 0.0 if unknown."""
        return self._delay.value(now) or 0.0

    @property
    def chunk_bytes(self) -> int:
        """How many bytes a chunk should have now."""
        return chunk_bytes_at(self.last_rate, self._least_chunk, self._most_chunk)

    def limit(self, now: float) -> int:
        """Return how many bytes may be in flight."""
        return int(min(self._filling(now), self._congestion_window))

    def _filling(self, now: float) -> int:
        """Return how many bytes fill the link."""
        rate, chunk = self.rate(now), self.chunk_bytes
        if rate > 0.0:
            path = min(self.round_trip(now), (self._shortest.value(now) or 0.0) + self._others)
            handled = max(chunk, self.last_rate * _HANDLING, (self.last_rate - _FAST) * self._late)
            wanted = int(self._gain * (rate * path + handled))
        else:
            wanted = INITIAL_CHUNKS * chunk
        return min(self._max_bytes, max(2 * chunk, wanted))

    def fits(self, nbytes: int, now: float) -> bool:
        """Return whether a chunk of that size may be sent now; one alone always may."""
        if not self._flight:
            return True
        if self.rate(now) > 0.0 and now - self._measured > ROUND_TRIP_MEMORY:
            return False
        return (len(self._flight) < self._max_chunks
                and self.in_flight + nbytes <= self.limit(now))

    def sent(self, sequence: int, nbytes: int, now: float) -> None:
        """Note that a chunk was handed to the transport."""
        self._flight[sequence] = _Flying(nbytes, now, alone=not self._flight)
        self.in_flight += nbytes

    def acknowledged(self, sequence: int, rate: float, now: float) -> bool:
        """
        Note an acknowledgement and the rate its sender measured (0.0 if unknown).

        Return whether the chunk was in flight.  Chunks sent well before it
        that are still in flight were overtaken: they, or their
        acknowledgements, are lost.
        """
        found = self._land(sequence)
        if found is None:
            return False
        if self._repeats:
            late = now - found.sent > self._usual_patience(now)
            self._congestion_window = (2 * self.chunk_bytes if late
                                       else self._congestion_window + found.nbytes)
        self._last_ack, self._silences = now, 0
        if rate > 0.0:
            self._rate.update(rate, now)
            self.last_rate = rate
        self._measure_delay(found, now)
        self._give_up([s for s in self._flight if s < sequence - _REORDER])
        return True

    def expire(self, now: float) -> int:
        """Give up chunks in flight if the other side has been silent; return how many."""
        patience = self.patience(now)
        gone = [s for s, flying in self._flight.items() if now - flying.sent >= patience]
        if not gone or now - max(self._last_ack, self._freed) < patience:
            return 0
        self._silences += 1
        if self._repeats:
            self._freed = now
            del gone[1:]  # an answer to the chunk that takes its place frees most others
        self._give_up(gone)
        return len(gone)

    def patience(self, now: float) -> float:
        """Return how long silence is borne; doubles with every time it was in vain."""
        return min(MAX_PATIENCE, self._usual_patience(now) * 2.0 ** min(self._silences, 10))

    def age(self, now: float) -> float:
        """Return the seconds since the last acknowledgement; inf before the first."""
        return now - self._last_ack

    def silence(self, now: float) -> float:
        """Return for how long (s) chunks in flight have waited for an acknowledgement of any."""
        oldest = next(iter(self._flight.values())).sent if self._flight else now
        return now - max(self._last_ack, oldest)

    def _usual_patience(self, now: float) -> float:
        rate = self.rate(now)
        usual = 3.0 * (self.round_trip(now) + self._filling(now) / rate) if rate > 0.0 else 0.0
        return max(MIN_PATIENCE, usual)

    def _measure_delay(self, flying: _Flying, now: float) -> None:
        rate = self.rate(now)
        own = flying.nbytes / rate if rate > 0.0 else 0.0
        delay = max(_LEAST_DELAY, now - flying.sent - own)
        known = self._delay.value(now)
        if flying.alone or known is None or delay < known:
            self._delay.update(delay, now)
            self._shortest.update(delay, now)
        if flying.alone and rate > 0.0:
            self._measured = now

    def _give_up(self, sequences: list[int]) -> None:
        for sequence in sequences:
            self._land(sequence)
        self.lost += len(sequences)

    def _land(self, sequence: int) -> _Flying | None:
        found = self._flight.pop(sequence, None)
        if found is not None:
            self.in_flight -= found.nbytes
        return found
