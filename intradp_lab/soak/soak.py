# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""A soak: the nodes of sharing run for a long time, and one thing after another goes wrong."""
from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
import json
import math
from pathlib import Path
from random import Random
import statistics
import time

from intradp_lab.soak.faults import Fault, faults_of, left_out
from intradp_lab.soak.frame_row import FrameRow, LOST
from intradp_lab.soak.process_resources import (
    Growth,
    growth,
    process_resources,
    ProcessResources,
)
from intradp_lab.soak.soak_site import open_site, SoakSite

#: The greatest difference to the unsplit model, relative to its output's spread.
EXACT = 1e-4
_SAMPLE = 1.0
Say = Callable[[str], None]


@dataclass(frozen=True)
class SoakPlan:
    """How long, what the link gives, how long faults and the rests between them last (seconds)."""

    seconds: float
    seed: int = 0
    mbps: float = 20.0
    rest: tuple[float, float] = (4.0, 12.0)
    lasting: tuple[float, float] = (0.5, 6.0)


@dataclass(frozen=True, slots=True)
class Happened:
    """A fault, from its beginning to its fix (seconds of the monotonic clock)."""

    name: str
    start: float
    stop: float


@dataclass
class SoakRecord:
    """What was done and seen."""

    linked: bool
    left_out: Mapping[str, str] = field(default_factory=dict)
    happened: list[Happened] = field(default_factory=list)
    samples: dict[str, list[ProcessResources]] = field(default_factory=dict)
    rows: list[FrameRow] = field(default_factory=list)


def run_soak(plan: SoakPlan, out: Path, say: Say = lambda text: None) -> SoakRecord:
    """
    Run the nodes under faults and return what was seen.

    :raises ChildError: if the nodes do not start, or the robot or the camera ends.
    """
    random, report = Random(plan.seed), out / 'camera.json'
    with open_site(out, plan.mbps) as site:
        record = SoakRecord(site.link is not None, left_out(site))
        site.start_camera(plan.seconds, report)
        end = time.monotonic() + plan.seconds
        faults = faults_of(site)
        while time.monotonic() < end:
            _watch(site, record, min(end, time.monotonic() + random.uniform(*plan.rest)))
            name = random.choice(sorted(faults))
            if (lasting := random.uniform(*plan.lasting)) < end - time.monotonic():
                say(f'{name.replace("_", " ")} for {lasting:.1f} s')
                _suffer(site, record, name, faults[name], lasting)
        site.camera.wait(2 * LOST)
    record.rows = [FrameRow(*row) for row in json.loads(report.read_text())]
    return record


def _suffer(site: SoakSite, record: SoakRecord, name: str, fault: Fault, lasting: float) -> None:
    start = time.monotonic()
    with fault(site):
        _watch(site, record, time.monotonic() + lasting)
    record.happened.append(Happened(name, start, time.monotonic()))


def _watch(site: SoakSite, record: SoakRecord, end: float) -> None:
    """Note what the nodes hold until a time."""
    while (now := time.monotonic()) < end:
        for child in (site.robot, site.camera):
            if child.returncode is not None and child is site.robot:
                raise child.ended('')
        for name, child in site.nodes().items():
            if found := process_resources(child.pid, now):
                record.samples.setdefault(name, []).append(found)
        time.sleep(min(_SAMPLE, max(0.0, end - now)))


@dataclass(frozen=True)
class FaultFigures:
    """
    How frames fared that were published while a kind of fault lasted.

    Those that were answered were shared by rows, shared otherwise, `recovered`
    by the robot from what it had, or computed by the robot alone.
    """

    times: int
    frames: int
    lost: int
    by_rows: int
    otherwise_shared: int
    recovered: int
    alone: int
    median_ms: float
    longest_ms: float


@dataclass(frozen=True)
class SoakFigures:
    """
    What a soak found.

    `quiet` is how frames fared during no fault.  `growth` has the processes that
    ran for long enough to judge; server and planner are others after faults.
    """

    frames: int
    lost: int
    wrong: int
    max_rel_diff: float
    shared: int
    recovered: int
    longest_ms: float
    quiet: FaultFigures
    faults: Mapping[str, FaultFigures]
    left_out: Mapping[str, str]
    growth: Mapping[str, Growth]

    @property
    def well(self) -> bool:
        """Return whether every frame was answered, exactly."""
        return self.frames > 0 and not self.lost and not self.wrong


def figures(record: SoakRecord) -> SoakFigures:
    """Condense what was seen."""
    answered = [row for row in record.rows if not math.isnan(row.answer_s)]
    kinds = sorted({each.name for each in record.happened})
    return SoakFigures(
        len(record.rows), len(record.rows) - len(answered),
        sum(not row.difference <= EXACT for row in answered),
        max((row.difference for row in answered), default=math.nan),
        sum(row.shared for row in answered), sum(row.recovered for row in answered),
        _longest(answered),
        _fared(0, [row for row in record.rows if not _within(row, record.happened)]),
        {kind: _of_kind([e for e in record.happened if e.name == kind], record.rows)
         for kind in kinds},
        record.left_out, {name: found for name, samples in record.samples.items()
                          if (found := growth(samples))})


def _of_kind(times: Sequence[Happened], rows: Sequence[FrameRow]) -> FaultFigures:
    return _fared(len(times), [row for row in rows if _within(row, times)])


def _within(row: FrameRow, times: Sequence[Happened]) -> bool:
    return any(each.start <= row.at <= each.stop for each in times)


def _fared(times: int, rows: Sequence[FrameRow]) -> FaultFigures:
    answered = [row for row in rows if not math.isnan(row.answer_s)]
    by_rows = sum(row.by_rows for row in answered)
    shared, recovered = (sum(row.shared for row in answered),
                         sum(row.recovered for row in answered))
    return FaultFigures(
        times, len(rows), len(rows) - len(answered), by_rows, shared - by_rows, recovered,
        len(answered) - shared - recovered,
        statistics.median(1e3 * row.answer_s for row in answered) if answered else 0.0,
        _longest(answered))


def _longest(rows: Sequence[FrameRow]) -> float:
    return max((1e3 * row.answer_s for row in rows), default=0.0)
