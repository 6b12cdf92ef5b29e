# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""
State rows that go round a ring, where there are too many sites for each to tell all others.

Every `PERIOD` a site sends at most `ROWS` rows to its neighbour on either side: those first that
are oldest there.  So what a site sends does not grow with the number of sites; a site makes its
own row the less often instead (`refresh`), so that nothing piles up on the way.

A neighbour that is silent, or does not hear this site, is bypassed.  It is asked on; once it
answers it is on probation, and becomes the neighbour again when it has answered all that time.
Each relapse doubles its probation.
"""
from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
import math
from typing import Any

import numpy as np

from intradp_ros.core.limits import MAX_SECONDS, within

#: Above so many sites rows go round a ring.
MOST_MESHED = 16
#: Seconds between messages, rows of one, and seconds between rows of few sites.
PERIOD, ROWS, LEAST_REFRESH = 0.02, 2, 0.1
#: Seconds of silence after which a neighbour is bypassed, and for which one that asked is
#: answered.
SILENT, ANSWERED = 0.3, 1.0
#: Seconds of the first probation and of the longest; a relapse counts within so many of them.
PROBATION, LONGEST_PROBATION, RELAPSE = 1.0, 60.0, 10.0


def refresh(sites: int) -> float:
    """Return the seconds between rows of a site: a cut ring can carry all rows in them."""
    return max(LEAST_REFRESH, PERIOD * math.ceil(sites / ROWS))


def bound(sites: int, hop: float, gone: int = 0) -> float:
    """
    Return how old, in seconds, what a site knows of another may be, with `hop` seconds a link.

    With `gone` sites gone at once, side by side, rows go the other way round, and what is on its
    way waits until each of them is found silent.
    """
    links = sites // 2 if not gone else sites - 1
    return 2 * refresh(sites) + links * (PERIOD + hop) + gone * (SILENT + PERIOD)


def oldest(sites: int) -> float:
    """Return the age, in seconds, above which a row is of a site that is taken to be gone."""
    return 2 * bound(sites, PERIOD, 1)


@dataclass(frozen=True, slots=True)
class RingRow:
    """
    The row of a site, `age` seconds old: the `version`-th of its `life`.

    A life is a number drawn when a site starts.

    :raises ValueError: if a number is out of its limits.
    """

    site: int
    life: int
    version: int
    age: float
    content: Any

    def __post_init__(self) -> None:
        """Look at all limits: rows come from the network."""
        within('life of a row', self.life, 0, 2**53)
        within('version of a row', self.version, 0, 2**53)
        within('age of a row', self.age, 0.0, MAX_SECONDS)


@dataclass(frozen=True, slots=True)
class RingMessage:
    """What one site sends to another: whether it `hears` that one, and `asks` for an answer."""

    sender: int
    hears: bool
    asks: bool
    rows: tuple[RingRow, ...] = ()

    def __post_init__(self) -> None:
        """Raise ValueError if there are more rows than a site may send."""
        within('rows of a message', len(self.rows), 0, ROWS)


class RingSite:
    """
    What one of several sites knows of all, and what it sends: a state machine over events.

    Times are seconds of the site's own clock; only ages cross machines.
    """

    def __init__(self, site: int, sites: int, life: int, now: float) -> None:
        """Start; nothing is known of others, and all are taken to be there."""
        self.site, self.sites, self._life = site, sites, life
        self._contents: list[Any] = [None] * sites
        self._rows = _versions(sites)
        self._there = (_versions(sites), _versions(sites))
        self._targets, self._chosen = [-1, -1], [now, now]
        self._out = np.zeros(sites, bool)
        self._came, self._asked, self._answered = (np.full(sites, -math.inf) for _ in range(3))
        self._since = np.full(sites, math.inf)
        self._admitted = np.full(sites, -math.inf)
        self._lasts = np.full(sites, PROBATION)
        self._due, self._looked, self._ticks = now, now, 0
        self._turn = [0, 0, 0]

    @property
    def neighbours(self) -> tuple[int, int]:
        """Return to whom rows are sent, -1 for nobody: the next site and the one before."""
        return self._targets[0], self._targets[1]

    def known(self, now: float) -> dict[int, tuple[float, Any]]:
        """Return age and content of the rows of all other sites that are not too old."""
        fresh = np.flatnonzero(self._rows.made > now - oldest(self.sites))
        return {j: (now - float(self._rows.made[j]), self._contents[j]) for j in fresh.tolist()
                if j != self.site}

    def heard(self, message: RingMessage, hop: float, now: float) -> list[RingRow]:
        """
        Take a message that was under way for `hop` seconds; return the rows that are news.

        :raises ValueError: if it names a site that is not there, or comes from this one.
        """
        sender = message.sender
        if sender == self.site:
            raise ValueError(f'a message of site {sender} came to itself: each has its own number')
        for site in (sender, *(row.site for row in message.rows)):
            within('number of a site', site, 0, self.sites - 1)
        self._came[sender] = now
        if message.asks:
            self._asked[sender] = now
        if message.hears:
            self._answered[sender] = now
        news = []
        for row in message.rows:
            made = now - row.age - hop
            for target, there in zip(self._targets, self._there):
                if target == sender:
                    there.take(row, made)
            if row.site != self.site and self._rows.take(row, made):
                self._contents[row.site] = row.content
                news.append(row)
        return news

    def look(self, now: float, content: Callable[[], Any]) -> list[tuple[int, RingMessage]]:
        """
        Return what is to be sent now, and to whom; call it every `PERIOD`.

        `content` makes the own row when one is due.  After a longer pause, in which this site
        itself lay still, the silence of others says nothing.
        """
        if (still := now - self._looked) > SILENT:
            for times in (self._came, self._asked, self._answered, self._since):
                times += still
            self._chosen = [one + still for one in self._chosen]
        self._looked, self._ticks = now, self._ticks + 1
        if now >= self._due:
            self._due = max(self._due, now - LEAST_REFRESH) + refresh(self.sites)
            own = RingRow(self.site, self._life, int(self._rows.version[self.site]) + 1, 0.0,
                          content())
            self._rows.take(own, now)
            self._contents[self.site] = own.content
        self._judge(now)
        sent = []
        for side in range(2):
            target = self._targets[side]
            if target >= 0 and (side == 0 or target != self._targets[0]):
                sent.append((target, RingMessage(
                    self.site, self._hears(target, now), True, self._oldest(side, now))))
        neighbours = np.zeros(self.sites, bool)
        neighbours[[one for one in self._targets if one >= 0]] = True
        if (guest := self._next(0, (now - self._asked <= ANSWERED) & ~neighbours)) >= 0:
            sent.append((guest, RingMessage(self.site, True, False)))
        answering = now - self._answered <= ANSWERED
        kind = 1 + self._ticks % 2
        if (other := self._next(kind, self._out & (answering if kind == 1 else ~answering))) >= 0:
            sent.append((other, RingMessage(self.site, self._hears(other, now), True)))
        return sent

    def _hears(self, other: int, now: float) -> bool:
        return bool(now - self._came[other] <= ANSWERED)

    def _judge(self, now: float) -> None:
        """Bypass silent neighbours, admit those whose probation is over, choose neighbours."""
        for side, target in enumerate(self._targets):
            if target < 0 or self._out[target]:
                continue
            if now - max(self._answered[target], self._chosen[side]) > SILENT:
                again = now - self._admitted[target] < RELAPSE * self._lasts[target]
                self._lasts[target] = min(LONGEST_PROBATION, 2 * self._lasts[target]) if again \
                    else PROBATION
                self._out[target], self._since[target] = True, math.inf
        for other in np.flatnonzero(self._out).tolist():
            if now - self._answered[other] > ANSWERED:
                self._since[other] = math.inf
            elif self._since[other] == math.inf:
                self._since[other] = now
            elif now - self._since[other] >= self._lasts[other]:
                self._out[other], self._admitted[other] = False, now
        for side, step in enumerate((1, -1)):
            around = (self.site + step * k for k in range(1, self.sites))
            target = next((j % self.sites for j in around if not self._out[j % self.sites]), -1)
            if target != self._targets[side]:
                self._targets[side], self._chosen[side] = target, now
                self._there[side].clear()

    def _oldest(self, side: int, now: float) -> tuple[RingRow, ...]:
        """Return rows that the neighbour on a side lacks, where it knows the oldest first."""
        there, rows = self._there[side], self._rows
        lacks = (rows.version != there.version) | (rows.life != there.life)
        lacks &= rows.made > now - oldest(self.sites)
        lacks[self._targets[side]] = False
        found = np.flatnonzero(lacks)
        if len(found) > ROWS:
            found = found[np.argsort(there.made[found], kind='stable')[:ROWS]]
        sent = tuple(RingRow(j, int(rows.life[j]), int(rows.version[j]), now - float(rows.made[j]),
                             self._contents[j]) for j in found.tolist())
        for row in sent:
            there.take(row, now - row.age)
        return sent

    def _next(self, kind: int, among: np.ndarray[Any, np.dtype[np.bool_]]) -> int:
        """Return the next of some sites in turn, -1 without any."""
        found = np.flatnonzero(among)
        if not len(found):
            return -1
        self._turn[kind] = int(found[np.searchsorted(found, self._turn[kind] + 1) % len(found)])
        return self._turn[kind]


@dataclass(frozen=True, slots=True)
class _Versions:
    """By site: life, version, and when that row was made (own clock)."""

    life: np.ndarray[Any, np.dtype[np.int64]]
    version: np.ndarray[Any, np.dtype[np.int64]]
    made: np.ndarray[Any, np.dtype[np.float64]]

    def take(self, row: RingRow, made: float) -> bool:
        """Take a row if it is newer: by version within a life, else by when it was made."""
        j = row.site
        newer = row.version > self.version[j] if row.life == self.life[j] else made > self.made[j]
        if newer:
            self.life[j], self.version[j], self.made[j] = row.life, row.version, made
        return bool(newer)

    def clear(self) -> None:
        """Forget all."""
        self.life[:], self.version[:], self.made[:] = -1, -1, -math.inf


def _versions(sites: int) -> _Versions:
    return _Versions(np.full(sites, -1, np.int64), np.full(sites, -1, np.int64),
                     np.full(sites, -math.inf))
