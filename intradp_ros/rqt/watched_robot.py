# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""What is seen of a robot that shares inferences: from messages of its node to rows of text."""
from __future__ import annotations

from collections import Counter, deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
import math
from statistics import median
from typing import Any

from intradp_ros.runtime.transport.timeline import Event, published_events

#: Inferences that are remembered, and those of them that medians and counts are of.
HISTORY, LATELY = 300, 50
EVENTS = 10
#: Seconds after which what was seen is called old.
OLD = 3.0
NOTHING = '-'
_MBPS = 8e-6  # of a byte a second
_MAX_TEXT = 300


@dataclass(frozen=True, slots=True)
class Sample:
    """One inference: when it was heard of (seconds), what it took (ms), who computed."""

    when: float
    latency: float
    alone: float
    who: str


ALONE, SHARED, BY_ROWS, RECOVERED = WHO = (
    'robot alone', 'server took part', 'both by rows', 'robot finished')


class WatchedRobot:
    """
    A robot's inferences, link and session as rows of text, samples, events and a timeline.

    Takes messages as they come, of any values: what is not a number is left out,
    texts are cut, and no more is kept than is shown.  Times are seconds.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.samples: deque[Sample] = deque(maxlen=HISTORY)
        self.events: deque[str] = deque(maxlen=EVENTS)
        self._stats: Any = None
        self._link: Any = None
        self._link_seen = -math.inf
        self._timeline: Any = None
        self._spans: Sequence[Event] = ()
        self._status = ''
        self._values: Mapping[str, str] = {}

    def take_stats(self, message: Any, now: float) -> None:
        """Take an `InferenceStats`."""
        self._stats = message
        if math.isfinite(message.latency_ms) and message.latency_ms > 0:
            alone = message.alone_ms if math.isfinite(message.alone_ms) else 0.0
            self.samples.append(Sample(now, message.latency_ms, alone, _who(message)))

    def take_link(self, message: Any, now: float) -> None:
        """Take a `LinkState`."""
        self._link, self._link_seen = message, now

    def take_event(self, message: Any) -> None:
        """Take a `SharingEvent`."""
        self.events.append(f'{message.kind[:20]} (inference {message.inference}): '
                           f'{message.text[:_MAX_TEXT]}')

    def take_diagnostics(self, message: Any) -> None:
        """Take a `DiagnosticArray`, which may be about other nodes too."""
        for status in message.status:
            if status.name == self.name:
                self._status = status.message[:_MAX_TEXT]
                self._values = {v.key: v.value[:_MAX_TEXT] for v in status.values}

    def take_timeline(self, message: Any) -> None:
        """Take an `InferenceTimeline`."""
        self._timeline = message

    @property
    def spans(self) -> Sequence[Event]:
        """Return the newest timeline; the same object as long as no other came."""
        if self._timeline is not None:  # most are never looked at
            self._spans, self._timeline = published_events(self._timeline), None
        return self._spans

    @property
    def lately(self) -> list[Sample]:
        """Return the last inferences, which medians and counts are of."""
        return [*self.samples][-LATELY:]

    @property
    def gain(self) -> float | None:
        """
        Return how many times as long the robot alone is expected to take, at the median.

        None as long as no inference says that.
        """
        ratios = [s.alone / s.latency for s in self.lately if s.alone > 0]
        return median(ratios) if ratios else None

    def rows(self, now: float) -> list[tuple[str, str]]:
        """Return what is known, each with its name."""
        return [('robot', self._robot(now)), ('session', self._status or NOTHING),
                ('server', self._server(now)), ('link', self._link_text(now)),
                ('schedule', self._schedule()), ('latency', self._latency()),
                ('gain over local', self._gain()), ('who computed', self._shares()),
                ('since the start', self._counts())]

    def _robot(self, now: float) -> str:
        mode = self._values.get('mode')
        parts = [self.name] + ([f'mode {mode}'] if mode else [])
        if self.samples:
            age = now - self.samples[-1].when
            parts.append(f'last inference {age:.0f} s ago' if age > OLD else 'running')
        else:
            parts.append('no inference seen')
        return ', '.join(parts)

    def _server(self, now: float) -> str:
        if self._link is None or now - self._link_seen > OLD:
            return NOTHING
        text = 'answers' if self._link.connected else 'does not share now'
        refusal = self._values.get('refusal')
        return f'{text}: {refusal}' if refusal else text

    def _link_text(self, now: float) -> str:
        link = self._link
        if link is None or now - self._link_seen > OLD:
            return NOTHING
        parts = [f'{word} {rate * _MBPS:.1f}' for word, rate in (
            ('up', link.up_rate), ('down', link.down_rate), ('expected', link.predicted_rate))
            if math.isfinite(rate) and rate > 0]
        text = f'{", ".join(parts)} Mbit/s' if parts else 'not measured'
        if math.isfinite(link.round_trip) and link.round_trip > 0:
            text += f'; round trip {link.round_trip * 1e3:.1f} ms'
        return text

    def _schedule(self) -> str:
        stats = self._stats
        return f'{stats.strategy[:20]} {stats.schedule}, {_who(stats)}' if stats else NOTHING

    def _latency(self) -> str:
        if not self.samples:
            return NOTHING
        text = f'{median(s.latency for s in self.lately):.1f} ms at the median'
        alone = [s.alone for s in self.lately if s.alone > 0]
        return text + (f'; alone {median(alone):.1f} ms expected' if alone else '')

    def _gain(self) -> str:
        return NOTHING if self.gain is None else f'{self.gain:.2f} times as fast'

    def _shares(self) -> str:
        if not self.samples:
            return NOTHING
        counts = Counter(sample.who for sample in self.lately)
        return ', '.join(f'{who} {counts[who]}' for who in WHO if counts[who]) + (
            f' of {len(self.lately)}')

    def _counts(self) -> str:
        parts = [f'{self._values[key]} {word}' for key, word in (
            ('inferences', 'inferences'), ('inferences_shared', 'shared'),
            ('outages', 'outages'), ('schedule_switches', 'switches of schedule'),
            ('inputs_dropped', 'inputs dropped')) if key in self._values]
        return ', '.join(parts) or NOTHING


def _who(stats: Any) -> str:
    """Return who computed an inference."""
    if stats.recovered:
        return RECOVERED
    if stats.shared:
        return BY_ROWS if stats.by_rows else SHARED
    return ALONE
