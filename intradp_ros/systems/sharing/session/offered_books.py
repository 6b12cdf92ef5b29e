# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""The books that a robot offers in a session, compiled on the server."""
from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from intradp_ros.core.limits import MAX_BOOK_TEXT
from intradp_ros.core.version import VERSION
from intradp_ros.runtime.requests.worker_thread import Worker
from intradp_ros.systems.sharing.book.book import ScheduleBook
from intradp_ros.systems.sharing.book.book_versions import BookVersion
from intradp_ros.systems.sharing.book.program_cache import ProgramCache
from intradp_ros.wire.frames import Control, ControlKind, MalformedFrameError
from intradp_ros.wire.sanitise import quoted
from intradp_ros.wire.texts import unpacked

MAX_OFFERS = 1  # books of a session that may wait to be compiled: the newest
Reply = Callable[[ControlKind, int, int, Mapping[str, Any]], None]


class OfferedBooks:
    """
    Compiles a robot's books on a thread of its own, called `name`, and says so to the robot.

    `reply` sends kind, epoch, inference and body of a frame; `reject` counts
    what is wrong with a book, `note` is given errors.
    """

    def __init__(self, cache: ProgramCache, reply: Reply, reject: Callable[[str, str], None],
                 note: Callable[[Exception], None], name: str) -> None:
        self.versions: tuple[BookVersion, ...] = ()  # the newest last
        self._cache, self._reply, self._reject = cache, reply, reject
        self._offered: tuple[int, object] | None = None  # epoch and text, unless refused
        self._worker = Worker(self._take, note, MAX_OFFERS, name)

    def stop(self) -> None:
        """Compile nothing more."""
        self._worker.stop()

    def find(self, epoch: int) -> ScheduleBook:
        """Return the book of an epoch; raises MalformedFrameError if there is none."""
        for version in self.versions:
            if version.epoch == epoch:
                return version.book
        have = ', '.join(str(version.epoch) for version in self.versions) or 'no book'
        raise MalformedFrameError(f'epoch {epoch}, this session has {have}', 'epoch')

    def offer(self, frame: Control) -> None:
        """Let a book be compiled; it is offered again and again until that is done."""
        offered = frame.epoch, frame.body.get('book')
        compiled = next((v for v in self.versions if v.epoch == frame.epoch), None)
        if compiled and compiled.text != offered[1]:
            self._refuse(frame, 'another schedule table has this epoch', taken=True)
        elif compiled:
            self._ready(compiled)
        elif offered != self._offered:
            self._offered = offered
            self._worker.put(frame)

    def _take(self, frame: Control) -> None:
        """Compile all schedules of a book, then say that they can be named."""
        kept = tuple(e for e in self.versions
                     if e.epoch == frame.body.get('used') and e.epoch != frame.epoch)
        try:
            version = self._compiled(frame, kept)
        except Exception as error:  # noqa: B902 - the book's fault, or out of memory: say so
            self._offered = None
            self._refuse(frame, str(error))
            return
        self.versions = (*kept, version)
        self._ready(version)

    def _ready(self, version: BookVersion) -> None:
        self._reply(ControlKind.BOOK_READY, version.epoch, 0, {'digest': version.digest})

    def _refuse(self, frame: Control, reason: str, *, taken: bool = False) -> None:
        self._reject('book', reason)
        self._reply(ControlKind.REFUSE, frame.epoch, 0, {
            'reason': f'bad schedule table: {quoted(reason)}', 'book': True, 'taken': taken})

    def _compiled(self, frame: Control, kept: tuple[BookVersion, ...]) -> BookVersion:
        """Return the book of a frame, compiled next to those that are kept; raise if it is bad."""
        text, model = frame.body['book'], self._cache.model
        book = ScheduleBook.from_json(unpacked(text, MAX_BOOK_TEXT))
        wanted = (model.digest, model.split.axis)
        if (book.digest, book.axis) != wanted:
            raise ValueError(f'the book is for model {book.digest} split along axis '
                             f'{book.axis}, not {wanted[0]} along {wanted[1]}')
        self._cache.prepare(*(e.book for e in kept), book, gently=bool(kept))
        fingerprint = self._cache.fingerprint(book)
        if frame.body.get('fingerprint') != fingerprint:
            raise ValueError('robot and server make different schedules of it: install the '
                             f'same release of intradp_ros on both (here {VERSION})')
        return BookVersion(frame.epoch, book, fingerprint, text)
