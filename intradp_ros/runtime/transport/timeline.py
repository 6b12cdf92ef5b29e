# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""What really happened in an inference: measured spans on the monotonic clock."""
from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import islice
import math
import time
from typing import Any

from intradp_ros.wire.sanitise import quoted

#: Spans of a published timeline that are read: many times what an inference of thousands of
#: operators has.
MAX_SPANS = 20_000
#: Names what the robot computed of what the server owed: while it waited, or when it gave up.
CATCH_UP, RECOVERY = 'catch-up', 'recovery'


@dataclass(frozen=True, slots=True)
class Event:
    """
    Something that took from `start` to `stop`.

    `lane` is a device or a direction of the link; times are seconds, on the
    recording side's monotonic clock until `shift` moves them.
    """

    lane: str
    kind: str
    name: str
    start: float
    stop: float

    def shift(self, seconds: float) -> Event:
        """Return the event moved in time."""
        return Event(self.lane, self.kind, self.name, self.start + seconds, self.stop + seconds)

    def to_list(self) -> list[Any]:
        """Return plain data for a report."""
        return [self.lane, self.kind, self.name, self.start, self.stop]

    @classmethod
    def from_list(cls, data: Sequence[Any]) -> Event:
        """Read what `to_list` wrote; ValueError if it is something else."""
        if len(data) != 5:
            raise ValueError(f'an event has five fields, got {data!r}')
        lane, kind, name, start, stop = data
        if not all(isinstance(word, str) for word in (lane, kind, name)) or not all(
                isinstance(t, float) and math.isfinite(t) for t in (start, stop)):
            raise ValueError('an event is three words and two times')
        return cls(quoted(lane), quoted(kind), quoted(name), start, stop)


def published_events(message: Any) -> list[Event]:
    """Return the spans of an `InferenceTimeline`, but for those that are not spans of time."""
    found = []
    for span in islice(zip(message.lane, message.kind, message.name, message.start, message.stop),
                       MAX_SPANS):
        with suppress(ValueError):
            event = Event.from_list(span)
            if event.start <= event.stop:
                found.append(event)
    return found


class Recorder:
    """Collects the events of one side; a compute span ends where a wait begins."""

    def __init__(self, lane: str) -> None:
        self.lane = lane
        self.events: list[Event] = []
        self._since = time.monotonic()
        self._first = ''
        self._last = ''

    def ran(self, name: str) -> None:
        """Note that an operator ran."""
        self._first = self._first or name
        self._last = name

    def waited(self, name: str, start: float, stop: float) -> None:
        """Close the compute span at `start` and note the wait."""
        self.close(start)
        self.events.append(Event(self.lane, 'wait', name, start, stop))
        self._since = stop

    def close(self, now: float) -> None:
        """End the running compute span."""
        if self._first:
            name = self._first if self._first == self._last else f'{self._first} .. {self._last}'
            self.events.append(Event(self.lane, 'compute', name, self._since, now))
        self._first = self._last = ''


def with_send_times(events: Iterable[Event]) -> list[Event]:
    """
    Let every transfer begin when the link took it up.

    A receiver only sees when a transfer's first chunk has come; the link
    took it up when it was queued (events of kind ``queued`` on the same
    lane, which are dropped) and the transfer before it was through.
    """
    events = list(events)
    queued = {(e.lane, e.name): e.start for e in events if e.kind == 'queued'}
    through: dict[str, float] = {}
    result = []
    for event in sorted(events, key=lambda e: e.stop):
        if event.kind == 'transfer' and (event.lane, event.name) in queued:
            earliest = max(queued[event.lane, event.name], through.get(event.lane, 0.0))
            through[event.lane] = event.stop
            event = replace(event, start=min(event.start, earliest))
        if event.kind != 'queued':
            result.append(event)
    return sorted(result, key=lambda e: e.start)


def total(events: Iterable[Event], lane: str, kind: str) -> float:
    """Seconds of all events of one kind on one lane."""
    return sum(e.stop - e.start for e in events if e.lane == lane and e.kind == kind)
