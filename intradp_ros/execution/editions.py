# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""The schedule books of a session: the one in use, and the one that shall follow it."""
from __future__ import annotations

from typing import NamedTuple

from intradp_ros.planning.book import ScheduleBook


class Edition(NamedTuple):
    """A book with its epoch: the number under which a session's frames mean it."""

    epoch: int
    book: ScheduleBook


class Editions:
    """
    A robot's books: the one that both sides have, and the newest.

    The one in use stays until the server has the newest too, so that a new
    book interrupts nothing.
    """

    def __init__(self) -> None:
        self.used: Edition | None = None
        self.newest: Edition | None = None

    @property
    def epoch(self) -> int:
        """Epoch of the newest book, 0 if there is none."""
        return self.newest.epoch if self.newest else 0

    @property
    def pending(self) -> bool:
        """Whether the newest book is not in use yet."""
        return self.newest is not self.used

    def add(self, book: ScheduleBook) -> bool:
        """Take a book that shall be used; return False if it is the newest already."""
        if self.newest and self.newest.book == book:
            return False
        self.newest = Edition(self.epoch + 1, book)
        return True

    def agree(self, epoch: object) -> bool:
        """Use the book of an epoch, which the server has; return False if there is none here."""
        self.used = next((edition for edition in (self.newest, self.used)
                          if edition and edition.epoch == epoch), None)
        return self.used is not None
