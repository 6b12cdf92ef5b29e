# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""Schedule books that a planner publishes: taken where meant, used while inferences run."""
from __future__ import annotations

from collections.abc import Callable

from intradp_ros.core.limits import MAX_BOOK_TEXT
from intradp_ros.msg import ScheduleBook as ScheduleBookMessage
from intradp_ros.nodes.common.announcement_seals import AnnouncementCheck, MAX_BYTES
from intradp_ros.nodes.common.lifecycle import LATCHED, ManagedNode
from intradp_ros.nodes.common.receiving import Receiver
from intradp_ros.nodes.sharing.profile_publisher import BOOK_TOPIC
from intradp_ros.runtime.requests.worker_thread import Worker
from intradp_ros.systems.sharing.book.book import ScheduleBook
from intradp_ros.wire.texts import unpacked

#: Books that may wait while one is compiled, the newest; inferences go on meanwhile.
MAX_BOOKS = 1


class BookIntake:
    """
    Takes the books of one robot's model, each text once.

    `use` gets them in a thread of their own, in which it may compile their
    schedules; what it raises is counted as a book that was rejected.
    """

    def __init__(self, node: ManagedNode, receiver: Receiver, check: AnnouncementCheck,
                 digest: str, use: Callable[[ScheduleBook], None]) -> None:
        """Subscribe until the node cleans up."""
        self._robot, self._digest = node.get_fully_qualified_name(), digest
        self._receiver, self._check, self._use, self._text = receiver, check, use, ''
        self._worker = Worker(self._take_text, self._failed, MAX_BOOKS, 'books')
        node.until_cleanup.callback(self._worker.close)
        books = receiver.subscribe(ScheduleBookMessage, BOOK_TOPIC, self._take, LATCHED, 'book',
                                   MAX_BYTES[ScheduleBookMessage])
        node.until_cleanup.callback(node.destroy_subscription, books)
        node.until_cleanup.callback(check.ask_on(node, receiver, ScheduleBookMessage, BOOK_TOPIC,
                                                 self._take, 'book'))

    def follow(self, digest: str) -> None:
        """Take the books of another model from now on."""
        self._digest = digest

    @property
    def dropped(self) -> int:
        """How many books were overtaken by newer ones."""
        return self._worker.dropped

    def _take(self, message: ScheduleBookMessage) -> None:
        if message.digest != self._digest:
            return  # a book for another robot's model
        if message.robot not in ('', self._robot):
            return  # or for another robot
        if self._check(message):
            self._worker.put(message.book)

    def _take_text(self, text: str) -> None:
        if text != self._text:
            self._use(ScheduleBook.from_json(unpacked(text, MAX_BOOK_TEXT)))
            self._text = text

    def _failed(self, error: Exception) -> None:
        if isinstance(error, ValueError):
            self._receiver.reject('book', str(error))
        else:
            self._receiver.reject('handler', f'{type(error).__name__}: {error}')
