# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""The times of all places of a site, which are learnt while they serve."""
from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from intradp_ros.systems.serving.allocator import largest_batch
from intradp_ros.systems.serving.executor import Opened
from intradp_ros.systems.serving.service import Service
from intradp_ros.systems.serving.service_table import learnt, ServiceTable
from intradp_ros.systems.serving.site_arrays import set_place, SiteArrays


class TableBook:
    """
    Tables by place, kept in the arrays of a site as promised seconds.

    A batch runs in the next larger size that there is a program for, so that all rows up to it
    take the same.
    """

    def __init__(self, site: SiteArrays, place: Mapping[tuple[int, int], int]) -> None:
        self._site, self._place = site, place
        self._tables: dict[int, ServiceTable] = {}
        self._sizes: dict[int, tuple[int, ...]] = {}
        self._why: dict[int, str] = {}

    def open(self, executor: int, service: int, declared: Service, found: Opened) -> None:
        """Let a place be used, with batches that suit the service's deadline."""
        place = self._place[executor, service]
        table = ServiceTable(found.seconds, found.spread, found.nbytes, found.load_seconds)
        self._tables[place], self._sizes[place] = table, found.sizes
        self._why[place] = found.why
        rungs = [self._rung(place, rows) for rows in range(1, found.sizes[-1] + 1)]
        whole = ServiceTable(tuple(found.seconds[k] for k in rungs),
                             tuple(found.spread[k] for k in rungs))
        size = largest_batch(whole, declared.deadline, found.sizes)
        set_place(self._site, place, size, self._promised(place), -1.0)

    def close(self, executor: int) -> None:
        """Let no place of an executor be used."""
        for (other, _), place in self._place.items():
            if other == executor:
                self._site.ready[place] = float('inf')

    def learn(self, place: int, rows: int, seconds: float) -> None:
        """Note what a batch of so many rows took, if such ones are still made."""
        if rows > self._sizes[place][-1]:
            return
        rung = self._rung(place, rows)
        self._tables[place] = learnt(self._tables[place], rung + 1, seconds)
        size = int(self._site.size[place])
        set_place(self._site, place, size, self._promised(place), float(self._site.ready[place]))

    def described(self, service: int) -> list[Mapping[str, Any]]:
        """Return size and promised milliseconds of each place of a service."""
        return [{'executor': executor, 'size': int(self._site.size[place]),
                 'promised_ms': {b: 1e3 * self._tables[place].quantile(k + 1)
                                 for k, b in enumerate(self._sizes[place])},
                 'mean_ms': {b: 1e3 * self._tables[place].seconds[k]
                             for k, b in enumerate(self._sizes[place])},
                 'why': self._why[place]}
                for (executor, number), place in self._place.items()
                if number == service and place in self._tables]

    def _rung(self, place: int, rows: int) -> int:
        """Return the index of the size in which so many rows run."""
        return next(k for k, b in enumerate(self._sizes[place]) if b >= rows)

    def _promised(self, place: int) -> list[float]:
        """Return the promised seconds by rows; more rows never take less."""
        quantiles = self._tables[place].quantiles()
        return [quantiles[self._rung(place, rows)]
                for rows in range(1, self._sizes[place][-1] + 1)]
