# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""
What schedules take with recourse, at any rates that may come.

The fastest schedule at the expected rate is seldom that of least expected
latency: what is lost below the rate is not what is gained above it, and a
schedule of many small transfers loses less.  So each is weighed over all rates,
with what it takes if the robot works on while rows are late.
"""
from __future__ import annotations

from collections.abc import Sequence
import math

import numpy as np
import numpy.typing as npt

from intradp_ros.systems.sharing.book.book import ScheduleBook
from intradp_ros.systems.sharing.book.critical_paths import MAX_PATHS, Path
from intradp_ros.systems.sharing.book.recourse_curve import CURVE_RATIOS

Floats = npt.NDArray[np.float64]
Places = npt.NDArray[np.intp]


class LatencyCurves:
    """
    Seconds of some schedules of a book, by schedule (rows) and rate in Mbit/s (columns).

    Devices take `robot` and `server` times as long as profiled.  If both take
    `f` times as long, all is as on a link `f` times as fast with a clock that
    goes slower.  So a place is a rate and a ratio of speeds; between those of
    the book's curves, the part of a schedule's time that recourse leaves is
    interpolated.  Beyond their ratios no schedule takes longer than where
    nothing comes.
    """

    def __init__(self, book: ScheduleBook, ids: Sequence[int]) -> None:
        known = [entry.anywhere for entry in (book.entries[i] for i in ids) if entry.anywhere]
        if len(known) < len(ids) or not all(k.recourse for k in known):
            raise ValueError('the book does not tell what its schedules take with recourse')
        self.ids, rates = tuple(ids), np.array(book.curve_rates)
        self._places = np.log(rates)
        self._paths = np.array([_padded(k.paths) for k in known])
        self._busy = np.array([k.busy[0] for k in known])
        played = np.array([k.recourse for k in known]).reshape(
            len(known), len(CURVE_RATIOS), len(rates))
        roots = np.sqrt(CURVE_RATIOS)
        self._ratios = np.log(CURVE_RATIOS)
        self._most = played.max(axis=2) / roots  # of a robot as profiled
        self._kept = played / np.maximum(np.stack(
            [self.plain(rates, root, 1 / root) for root in roots], axis=1), 1e-12)

    def plain(self, mbps: Floats, robot: float = 1.0, server: float = 1.0) -> Floats:
        """Return the seconds if the robot waits."""
        fixed = self._paths @ np.array([robot, server, 0.0, 1.0])
        found: Floats = (fixed[:, :, None] + self._paths[:, :, 2, None] / mbps).max(axis=1)
        return found

    def at_once(self, mbps: Floats, robot: float = 1.0, server: float = 1.0) -> Floats:
        """Return the seconds if the robot works on whenever it waits."""
        both = math.sqrt(robot * server)
        faster, root = mbps * both, math.sqrt(robot / server)
        near, far, part = _between(self._ratios, np.log([root * root]))
        kept = self._kept[:, near[0]] * (1 - part) + self._kept[:, far[0]] * part
        most = self._most[:, near] * (1 - part) + self._most[:, far] * part
        low, high, part = _between(self._places, np.log(faster))
        plain = self.plain(np.maximum(faster, np.exp(self._places[0])), root, 1 / root)
        found: Floats = np.minimum(
            both * plain * (kept[:, low] * (1 - part) + kept[:, high] * part), robot * most)
        return found

    def by_plan(self, mbps: Floats, late: Floats, robot: float = 1.0, server: float = 1.0,
                ) -> Floats:
        """
        Return at most which seconds it takes if the robot works on when rows are late.

        They are `late` seconds after the beginning, by schedule.  The time until
        then is taken for lost, but for what the robot computes by its program;
        rows that come meanwhile win some of it back.
        """
        plain = self.plain(mbps, robot, server)
        idle = np.maximum(0.0, late - robot * self._busy)[:, None]
        works = np.minimum(plain, self.at_once(mbps, robot, server) + idle)
        found: Floats = np.where(plain <= late[:, None], plain, works)
        return found


def _between(known: Floats, places: Floats) -> tuple[Places, Places, Floats]:
    """Return by place the neighbours among what is known, and how far it is between them."""
    at = np.interp(places, known, np.arange(len(known)))
    low = np.minimum(at.astype(int), len(known) - 2)
    return low, low + 1, at - low


def _padded(paths: Sequence[Path]) -> list[Path]:
    return [*paths, *[paths[0]] * (MAX_PATHS - len(paths))]
