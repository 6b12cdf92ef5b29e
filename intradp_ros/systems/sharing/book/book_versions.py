# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""The schedule books of a session: the one in use, and the one that shall follow it."""
from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
import hashlib
import threading

from intradp_ros.systems.sharing.book.book import ScheduleBook
from intradp_ros.wire.texts import packed


@dataclass(frozen=True)
class BookVersion:
    """
    A book with its epoch: the number under which a session's frames mean it.

    `fingerprint` says what this side makes of the book, `text` is the book
    as it crossed, or crosses, the link.
    """

    epoch: int
    book: ScheduleBook
    fingerprint: str
    text: str

    @cached_property
    def digest(self) -> str:
        """SHA-256 (hex) of the text: equal where both sides mean the same by the epoch."""
        return hashlib.sha256(self.text.encode()).hexdigest()


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
            self.newest = BookVersion(epoch, book, fingerprint,
                                      packed(book.to_json(indented=False)))
            return True

    def renumber(self, epoch: int) -> None:
        """Give the newest book another epoch if it has this one, which is another book's."""
        with self._lock:
            newest = self.newest
            if newest and newest is not self.used and newest.epoch == epoch:
                self.newest = replace(newest, epoch=epoch + 1)

    def confirm(self, epoch: int, digest: object) -> bool:
        """Use the newest book if it is the one that the server now has; return whether it is."""
        with self._lock:
            if self.newest is None or (self.newest.epoch, self.newest.digest) != (epoch, digest):
                return False
            self.used = self.newest
            return True

    def resume(self, digests: Mapping[int, str]) -> bool:
        """
        Use the newer book that a server still has; return False if it has none of them.

        `digests` are those of its books by epoch; under the same epoch it may have another book.
        """
        with self._lock:
            self.used = next((version for version in (self.newest, self.used)
                              if version and digests.get(version.epoch) == version.digest), None)
            return self.used is not None
