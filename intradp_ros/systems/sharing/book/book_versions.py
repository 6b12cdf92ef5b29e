# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""The schedule books of a session: the one in use, and the one that shall follow it."""
from __future__ import annotations

from collections.abc import Container
from dataclasses import dataclass
from functools import cached_property
import threading

from intradp_ros.systems.sharing.book.book import ScheduleBook
from intradp_ros.wire.texts import packed


@dataclass(frozen=True)
class BookVersion:
    """
    A book with its epoch: the number under which a session's frames mean it.

    `fingerprint` tells what this side makes of the book.
    """

    epoch: int
    book: ScheduleBook
    fingerprint: str

    @cached_property
    def text(self) -> str:
        """The book as it crosses the link."""
        return packed(self.book.to_json())


class BookVersions:
    """
    A robot's books: the one that both sides have, and the newest.

    The one in use stays until the server has the newest too, so that a new
    book interrupts nothing.  May be used from any thread.
    """

    def __init__(self) -> None:
        self.used: BookVersion | None = None
        self.newest: BookVersion | None = None
        self._lock = threading.Lock()

    @property
    def epoch(self) -> int:
        """Epoch of the newest book, 0 if there is none."""
        newest = self.newest
        return newest.epoch if newest else 0

    @property
    def books(self) -> tuple[ScheduleBook, ...]:
        """The newest book and the one in use; one or none if there are no two."""
        with self._lock:
            versions = (self.newest, self.used if self.used is not self.newest else None)
        return tuple(version.book for version in versions if version)

    @property
    def offer(self) -> tuple[BookVersion, int] | None:
        """The newest book with the epoch of the one in use (0: none); None if that is the one."""
        with self._lock:
            if self.newest is None or self.newest is self.used:
                return None
            return self.newest, self.used.epoch if self.used else 0

    def add(self, book: ScheduleBook, fingerprint: str) -> bool:
        """Take a book that shall be used; return False if it is the newest already."""
        with self._lock:
            if self.newest and self.newest.book == book:
                return False
            epoch = self.newest.epoch + 1 if self.newest else 1
            self.newest = BookVersion(epoch, book, fingerprint)
            return True

    def confirm(self, epoch: int) -> bool:
        """Use the newest book if it is the one that the server now has; return whether it is."""
        with self._lock:
            if self.newest is None or self.newest.epoch != epoch:
                return False
            self.used = self.newest
            return True

    def resume(self, epochs: Container[object]) -> bool:
        """Use the newer book that a server still has; return False if it has none of them."""
        with self._lock:
            self.used = next((version for version in (self.newest, self.used)
                              if version and version.epoch in epochs), None)
            return self.used is not None
