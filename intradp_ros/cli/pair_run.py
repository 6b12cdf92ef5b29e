# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""Frames through an in-process pair in several modes, compared with the unsplit model."""
from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
import statistics
import time
from typing import Any

import torch

from intradp_ros.cli.command_errors import CommandError
from intradp_ros.cli.output import Advance
from intradp_ros.cli.subject import Subject, tensors_of, varied_frames
from intradp_ros.runtime.requests.outcome import Outcome
from intradp_ros.runtime.transport.timeline import Event
from intradp_ros.schedule.schedule import ROBOT, SERVER
from intradp_ros.split.checks.verify import computed_in, output_error
from intradp_ros.systems.sharing.book.book import ScheduleBook
from intradp_ros.systems.sharing.session.pair import Pair

START_TIMEOUT = 30.0  # seconds for the session, and for the first measurement of the link


@dataclass
class Series:
    """What the frames of one mode gave."""

    outcomes: list[Outcome] = field(default_factory=list)
    differences: list[float] = field(default_factory=list)
    exact: bool = True


@dataclass
class Session:
    """A connected pair with the figures gathered so far."""

    subject: Subject
    pair: Pair
    modes: Sequence[str]
    eager: list[float] = field(default_factory=list)
    series: dict[str, Series] = field(default_factory=dict)
    events: tuple[Event, ...] = ()


def connect(pair: Pair, book: ScheduleBook, log: list[str]) -> None:
    """
    Wait until both sides have the book and the link has been measured.

    :raises CommandError: if that does not happen; `log` says what both sides wrote.
    """
    pair.robot.use_book(book)
    ready = pair.robot.connection.wait_ready(START_TIMEOUT)
    end = time.monotonic() + START_TIMEOUT
    while ready and pair.robot.predicted_rate <= 0 and time.monotonic() < end:
        time.sleep(0.02)
    if not ready or pair.robot.predicted_rate <= 0:
        raise CommandError('robot and server did not come together: ' + '; '.join(log))


def run_frames(session: Session, frames: int, advance: Advance) -> None:
    """Run every frame eagerly and in all modes; the first frame is a warm-up and not counted."""
    for frame, inputs in enumerate(varied_frames(session.subject.inputs, frames + 1)):
        start = time.perf_counter()
        expected = session.subject.unsplit(inputs)
        if frame:
            session.eager.append(time.perf_counter() - start)
        for mode in session.modes:
            outcome = session.pair.robot.infer(inputs, strategy=mode)
            if frame:
                _note(session, mode, outcome, expected)
        advance(frame + 1, frames + 1)


def _note(session: Session, mode: str, outcome: Outcome, expected: Sequence[torch.Tensor]) -> None:
    series = session.series.setdefault(mode, Series())
    computed = computed_in(session.subject.graph)
    errors = [output_error('', given, wanted, computed)
              for given, wanted in zip(tensors_of(outcome.outputs), expected)]
    series.outcomes.append(outcome)
    series.differences.append(max((e.relative for e in errors), default=0.0))
    series.exact &= all(e.exact for e in errors)
    if mode == session.modes[-1]:
        session.events = session.pair.robot.timeline(outcome)


def figures(series: Series) -> dict[str, Any]:
    """Return the figures of a mode: milliseconds, and bytes and joules of one frame."""
    stats = [outcome.stats for outcome in series.outcomes]
    latencies = [s.latency for s in stats]
    return {
        'frames': len(stats), 'recovered': sum(s.recovered for s in stats),
        'median_ms': 1e3 * statistics.median(latencies), 'p95_ms': 1e3 * _p95(latencies),
        'predicted_ms': 1e3 * statistics.median(s.predicted for s in stats),
        'bytes_up': round(statistics.mean(s.bytes_up for s in stats)),
        'bytes_down': round(statistics.mean(s.bytes_down for s in stats)),
        'energy_j': statistics.mean(s.energy for s in stats),
        'max_rel_diff': max(series.differences)}


def sent_bytes(pair: Pair) -> dict[str, dict[str, tuple[int, int]]]:
    """Return by side and encoding the bytes that crossed, and what they were plain."""
    return {ROBOT: dict(pair.robot.sent.by_encoding()),
            SERVER: dict(pair.server.sent.by_encoding())}


def _p95(values: Sequence[float]) -> float:
    """Return the smallest value that 95 % do not exceed."""
    return sorted(values)[-(-len(values) * 95 // 100) - 1]
