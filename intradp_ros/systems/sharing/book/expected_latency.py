# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""
What schedules take if the robot catches up, at any rates that may come and speeds of devices.

The fastest schedule at the expected rate is seldom that of least expected
latency: what is lost below the rate is not what is gained above it, and a
schedule of many small transfers loses less.  So each is weighed over all
rates, with what it takes if the robot works on while rows are late.
"""
from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from intradp_ros.systems.sharing.book.book import ScheduleBook
from intradp_ros.systems.sharing.book.catch_up_curve import CURVE_RATIOS
from intradp_ros.systems.sharing.book.critical_paths import Path

Floats = npt.NDArray[np.float64]
Factors = Floats | float
Places = npt.NDArray[np.intp]


class LatencyCurves:
    """
    Seconds of some schedules of a book, by schedule (rows) and place (columns).

    A place is a rate in Mbit/s and how many times as long as profiled `robot`
    and `server` take: arrays of one shape, or one number for all.  If both take
    `f` times as long, all is as on a link `f` times as fast with a clock that
    goes slower.  So a rate and a ratio of speeds give the place among the
    book's curves; between these, the part of a schedule's time that catching up leaves is
    interpolated.  Beyond their ratios no schedule takes longer than where
    nothing comes.
    """

    def __init__(self, book: ScheduleBook, ids: Sequence[int]) -> None:
        known = [entry.anywhere for entry in (book.entries[i] for i in ids) if entry.anywhere]
        if len(known) < len(ids) or not all(k.catch_up for k in known):
            raise ValueError('the schedule table does not say what its schedules take if '
                             'the robot catches up')
        self.ids, rates = tuple(ids), np.array(book.curve_rates)
        self._places = np.log(rates)
        longest = max(len(k.paths) for k in known)
        self._paths = np.array([_padded(k.paths, longest) for k in known])
        self._busy = np.array([k.busy[0] for k in known])
        played = np.array([k.catch_up for k in known]).reshape(
            len(known), len(CURVE_RATIOS), len(rates))
        roots = np.sqrt(CURVE_RATIOS)
        self._ratios = np.log(CURVE_RATIOS)
        self._most = played.max(axis=2) / roots  # of a robot as profiled
        self._kept = played / np.maximum(np.stack(
            [self.plain(rates, root, 1 / root) for root in roots], axis=1), 1e-12)

    def plain(self, mbps: Floats, robot: Factors = 1.0, server: Factors = 1.0) -> Floats:
        """Return the seconds if the robot waits."""
        place = np.stack(np.broadcast_arrays(robot, server, 1 / mbps, 1.0))
        found: Floats = (self._paths @ place).max(axis=1)
        return found

    def at_once(self, mbps: Floats, robot: Factors = 1.0, server: Factors = 1.0) -> Floats:
        """Return the seconds if the robot works on whenever it waits."""
        mbps, robot, server = np.broadcast_arrays(mbps, robot, server)
        both, root = np.sqrt(robot * server), np.sqrt(robot / server)
        faster = mbps * both
        near, far, part = _between(self._ratios, np.log(root * root))
        low, high, rest = _between(self._places, np.log(faster))
        kept = _mean(_mean(self._kept[:, near, low], self._kept[:, far, low], part),
                     _mean(self._kept[:, near, high], self._kept[:, far, high], part), rest)
        most = _mean(self._most[:, near], self._most[:, far], part)
        plain = self.plain(np.maximum(faster, np.exp(self._places[0])), root, 1 / root)
        found: Floats = np.minimum(both * plain * kept, robot * most)
        return found

    def with_catch_up(self, mbps: Floats, late: Floats, robot: Factors = 1.0,
                      server: Factors = 1.0) -> tuple[Floats, Floats]:
        """
        Return `at_once`, and at most which seconds it takes if the robot works on by plan.

        That is when rows are late: `late` seconds after the beginning, by schedule.  The
        time until then is taken for lost, but for what the robot computes by its program;
        rows that come meanwhile win some of it back.
        """
        plain, at_once = (curve(mbps, robot, server) for curve in (self.plain, self.at_once))
        idle = np.maximum(0.0, late[:, None] - self._busy[:, None] * robot)
        works = np.minimum(plain, at_once + idle)
        return at_once, np.where(plain <= late[:, None], plain, works)


def _between(known: Floats, places: Floats) -> tuple[Places, Places, Floats]:
    """Return by place the neighbours among what is known, and how far it is between them."""
    at = np.interp(places, known, np.arange(len(known)))
    low = np.minimum(at.astype(int), len(known) - 2)
    return low, low + 1, at - low


def _mean(low: Floats, high: Floats, part: Floats) -> Floats:
    """Return what is so far between both."""
    return low * (1 - part) + high * part


def _padded(paths: Sequence[Path], count: int) -> list[Path]:
    return [*paths, *[paths[0]] * (count - len(paths))]
