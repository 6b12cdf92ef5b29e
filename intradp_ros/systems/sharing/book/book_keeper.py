# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""One model's book, kept up with what is known of devices and link."""
from __future__ import annotations

from collections.abc import Callable
import math
from pathlib import Path
from statistics import median
import time

from intradp_ros.systems.sharing.book.book import ScheduleBook
from intradp_ros.systems.sharing.book.plan_from_profiles import change_of, PlanRequest
from intradp_ros.systems.sharing.book.plan_process import PlanningError, PlanProcess

Log = Callable[[str], None]
#: What moves no prediction by more than this part changes nothing worth a thought.
UNMOVED = 0.05
#: Seconds between two books that are searched for.
PAUSE = 600.0


class BookKeeper:
    """
    Makes a model's first book, and later ones only where that pays.

    What is newly known (`want`) first plays some of the schedules that there
    are again, in milliseconds.  If that moves a prediction, a process of
    little weight looks whether a new book would win something, and
    makes it or returns the one that there is with what its schedules take
    now; at most every `PAUSE` seconds.  `poll` is to be called now and then,
    all from one thread.  `made` counts the books that were searched for.
    """

    def __init__(self, log: Log, folder: Path | None = None) -> None:
        self.made = 0
        self._log, self._folder = log, folder
        self._wanted: PlanRequest | None = None
        self._moved: float | None = None  # by which it moves predictions, once that is known
        self._process: PlanProcess | None = None
        self._original: ScheduleBook | None = None  # as it was searched for
        self._newest: ScheduleBook | None = None
        self._next = -math.inf

    @property
    def busy(self) -> bool:
        """Whether a process is at work."""
        return self._process is not None

    def want(self, request: PlanRequest) -> None:
        """Take what a book depends on now; the last one counts."""
        self._wanted, self._moved = request, None

    def poll(self, *, may_begin: bool = True) -> ScheduleBook | None:
        """
        Return a new book once it is there; begin to make another if that may be done now.

        :raises PlanningError: if a book could not be made; the next request is tried again.
        """
        found = self._finished()
        idle = may_begin and self._process is None
        if idle and self._wanted and self._is_worth_it(self._wanted):
            self._begin(self._wanted)
        return found

    def _begin(self, request: PlanRequest) -> None:
        other_kind = self._moved == math.inf
        self._process = PlanProcess(request, self._folder,
                                    former=None if other_kind else self._original)
        self._wanted = self._moved = None
        self._next = time.monotonic() + PAUSE if self._newest else -math.inf

    def close(self) -> None:
        """Stop what is at work."""
        if self._process:
            self._process.cancel()
        self._process = None

    def _is_worth_it(self, wanted: PlanRequest) -> bool:
        """Return whether to start a process for a request now; forget it if it changes nothing."""
        if self._newest is None:
            return True
        if self._moved is None:
            self._moved = self._change(self._newest, wanted)
        if self._moved <= UNMOVED:
            self._log(f'the book stays: what is new moves its predictions by {self._moved:.1%} '
                      'at most')
            self._wanted = self._moved = None
            return False
        return self._moved == math.inf or time.monotonic() >= self._next

    def _change(self, book: ScheduleBook, wanted: PlanRequest) -> float:
        try:
            return change_of(book, wanted)
        except ValueError as error:
            self._wanted = None
            raise PlanningError(str(error)) from error

    def _finished(self) -> ScheduleBook | None:
        try:
            text = self._process.result() if self._process else None
        except PlanningError:
            self._process = None
            raise
        if text is None:
            return None
        self._process = None
        book = ScheduleBook.from_json(text)
        self._announce(book)
        self._newest, self._moved = book, None
        if book.bounds or self._original is None:
            self.made, self._original = self.made + 1, book
        return book

    def _announce(self, book: ScheduleBook) -> None:
        """Say what a book that follows another one changes."""
        if self._newest is None:
            return
        ratio = median(book.expected(mbps) / self._newest.expected(mbps) for mbps in book.grid)
        how = 'made anew' if book.bounds else 'the same schedules'
        self._log(f'{how}: expected to take {ratio:.2f} times what the book before says')
