# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""The times of all places of a site, which are learnt while they serve."""
from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from intradp_ros.systems.serving.allocator import largest_batch
from intradp_ros.systems.serving.executor import Opened
from intradp_ros.systems.serving.service import Service
from intradp_ros.systems.serving.service_table import learnt, ServiceTable
from intradp_ros.systems.serving.site_arrays import set_place, SiteArrays


class TableBook:
    """
    Tables by place, kept in the arrays of a site as promised seconds.

    A place is a service on an executor, `place` its index in the arrays.  A batch runs in the next
    larger size that there is a program for, so that all rows up to it take the same.
    """

    def __init__(self) -> None:
        self.place: Mapping[tuple[int, int], int] = {}
        self._found: dict[tuple[int, int], _Known] = {}

    def arrange(self, site: SiteArrays) -> None:
        """Take the arrays of a site, also in place of former ones with other places."""
        self._site = site
        pairs = zip(site.executor_of.tolist(), site.service_of.tolist())
        self.place = {pair: k for k, pair in enumerate(pairs)}
        self._found = {pair: known for pair, known in self._found.items() if pair in self.place}

    def open(self, executor: int, service: int, declared: Service, found: Opened) -> None:
        """Let a place be used, with batches that suit the service's deadline."""
        table = ServiceTable(found.seconds, found.spread, found.nbytes, found.load_seconds)
        known = self._found[executor, service] = _Known(table, found.sizes, found.why)
        rungs = [known.rung(rows) for rows in range(1, found.sizes[-1] + 1)]
        whole = ServiceTable(tuple(found.seconds[k] for k in rungs),
                             tuple(found.spread[k] for k in rungs))
        size = largest_batch(whole, declared.deadline, found.sizes)
        set_place(self._site, self.place[executor, service], size, known.promised(), -1.0)

    def close(self, executor: int) -> None:
        """Let no place of an executor be used."""
        for (other, _), place in self.place.items():
            if other == executor:
                self._site.ready[place] = float('inf')

    def serves(self, service: int, but: int) -> bool:
        """Return whether a place of a service is used on another executor than `but`."""
        return any(number == service and executor != but
                   and self._site.ready[self.place[executor, number]] < float('inf')
                   for executor, number in self._found)

    def learn(self, place: int, rows: int, seconds: float) -> None:
        """Note what a batch of so many rows took, if such ones are still made."""
        site = self._site
        known = self._found[int(site.executor_of[place]), int(site.service_of[place])]
        if rows > known.sizes[-1]:
            return
        known.table = learnt(known.table, known.rung(rows) + 1, seconds)
        set_place(site, place, int(site.size[place]), known.promised(), float(site.ready[place]))

    def described(self, service: int) -> list[Mapping[str, Any]]:
        """Return size and promised milliseconds of each place of a service."""
        return [{'executor': executor, 'size': int(self._site.size[self.place[executor, number]]),
                 'promised_ms': {b: 1e3 * known.table.quantile(k + 1)
                                 for k, b in enumerate(known.sizes)},
                 'mean_ms': {b: 1e3 * known.table.seconds[k] for k, b in enumerate(known.sizes)},
                 'why': known.why}
                for (executor, number), known in self._found.items() if number == service]


@dataclass
class _Known:
    """The table of a place, by the sizes of batches; `why` no larger ones."""

    table: ServiceTable
    sizes: tuple[int, ...]
    why: str

    def rung(self, rows: int) -> int:
        """Return the index of the size in which so many rows run."""
        return next(k for k, b in enumerate(self.sizes) if b >= rows)

    def promised(self) -> list[float]:
        """Return the promised seconds by rows; more rows never take less."""
        quantiles = self.table.quantiles()
        return [quantiles[self.rung(rows)] for rows in range(1, self.sizes[-1] + 1)]
