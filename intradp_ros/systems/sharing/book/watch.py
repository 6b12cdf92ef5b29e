# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""Watching whether devices and link are still what plans were made for."""
from __future__ import annotations

from collections.abc import Callable
import threading
import time

from intradp_ros.link.chunk_size import LEAST_CHUNK_BYTES
from intradp_ros.link.delay import DelayMeter
from intradp_ros.profiling.drift import DriftMeter, slowed
from intradp_ros.profiling.profile import Profile
from intradp_ros.schedule.joins import joins_of
from intradp_ros.schedule.schedule import Compute, ROBOT, Schedule, Transfer
from intradp_ros.split.local_operator import SplitGraph
from intradp_ros.wire.codecs.registry import piece_bytes

#: An inference in which the device computes less than this part of the model says little of it.
LEAST_PART = 0.1
#: Seconds between two changes: planning takes a while, and may itself slow the device.
PAUSE = 60.0


class DriftWatch:
    """
    Tells when a device has become lastingly slower or faster than its profile.

    `changed` is called with the profile as it is now, on the thread that
    runs inferences, at most every `PAUSE` seconds.  Sessions may share it.

    :raises ValueError: if the profile was measured on another graph.
    """

    def __init__(self, split: SplitGraph, profile: Profile, changed: Callable[[Profile], None],
                 meter: DriftMeter | None = None) -> None:
        if len(profile.timings) != len(split.operators) or profile.axis != split.axis:
            raise ValueError('the profile was measured on another graph or split axis')
        self._profile, self._changed = profile, changed
        self._meter = meter or DriftMeter()
        self._adding = threading.Lock()
        self._silent_until = float('-inf')
        self._tables = [timing.table(op.rows) * profile.scale
                        for timing, op in zip(profile.timings, split.operators)]

    def expected(self, split: SplitGraph, schedule: Schedule, side: str) -> float:
        """Return the seconds that the compute steps of a side take by the profile."""
        joins = joins_of(split, schedule, side, has_inputs=side == ROBOT)
        return sum(self._profile.joining.seconds(*joined) for joined in joins) + sum(
            float(self._tables[s.operator][s.region.rows])
            for s in schedule.programs[side] if isinstance(s, Compute))

    def moving(self, split: SplitGraph, schedule: Schedule, side: str) -> float:
        """Return the seconds that moving the rows of a schedule may take from its operators."""
        if not self._profile.crowded:
            return 0.0
        cost, seconds = self._profile.moving, 0.0
        for t in schedule.transfers:
            one_way = cost.sending if t.source == side else cost.receiving
            ratio, dtype = self._ratio(t), split.graph.values[t.value].dtype
            piece = piece_bytes(t.encoding, dtype, LEAST_CHUNK_BYTES, ratio)
            seconds += one_way(split.nbytes(t.value, t.region.rows), piece, ratio)
        return seconds

    def _ratio(self, transfer: Transfer) -> float:
        """Return which part of a transfer's bytes is expected to cross."""
        encodings = self._profile.encodings
        known = encodings[transfer.value].get(transfer.encoding) if encodings else None
        return known.ratio if known else 1.0

    def ran(self, measured: float, expected: float, complete: bool = True,
            moving: float = 0.0) -> None:
        """
        Take the seconds that an inference's compute took and should have taken.

        What it took longer is explained by up to `moving` seconds; how much
        of these fell into waiting is not known.  One that was broken off
        says only something if it took too long already.
        """
        measured = max(measured - moving, min(measured, expected))
        if expected < LEAST_PART * self._profile.whole_seconds or (
                not complete and measured <= expected) or time.monotonic() < self._silent_until:
            return
        with self._adding:
            factor = self._meter.add(measured, expected)
            if factor is not None:
                self._silent_until = time.monotonic() + PAUSE
        if factor is not None:
            self._changed(slowed(self._profile, factor))


class DelayWatch:
    """
    Tells the link's delay once it is known, and when it has clearly become another.

    `changed` is called with the seconds one way, on the thread that receives,
    at most every `PAUSE` seconds.
    """

    def __init__(self, changed: Callable[[float], None], meter: DelayMeter | None = None) -> None:
        self._changed, self._meter = changed, meter or DelayMeter()
        self._silent_until = float('-inf')

    def answered(self, round_trip: float) -> None:
        """Take the seconds until a ping was answered."""
        now = time.monotonic()
        if now < self._silent_until:
            return
        delay = self._meter.add(round_trip)
        if delay is not None:
            self._silent_until = now + PAUSE
            self._changed(delay)
