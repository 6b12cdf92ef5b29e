# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""One robot's session on the server: its books, and the inference at hand."""
from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import replace
import queue
import threading
import time
from typing import Any

from intradp_ros.core.steady import Steady
from intradp_ros.runtime.execution.processor import Processor, Turns
from intradp_ros.runtime.transport.mailbox import InferenceAbandonedError
from intradp_ros.runtime.transport.sending import SendContext
from intradp_ros.runtime.transport.traffic import Traffic
from intradp_ros.systems.sharing.book.book import ScheduleBook
from intradp_ros.systems.sharing.book.program_cache import ProgramCache
from intradp_ros.systems.sharing.inference.answer_intake import GIVEN_UP
from intradp_ros.systems.sharing.inference.server_run import named_by, ServerRun
from intradp_ros.systems.sharing.session.offered_books import OfferedBooks
from intradp_ros.wire.chunking import ExpectedTransfer, Reassembler, TAMPERED
from intradp_ros.wire.frames import Chunk, Control, ControlKind, MalformedFrameError

Log = Callable[[str], None]


class ServerSession:
    """
    Sorts what a robot sends; a worker thread runs its inferences.

    A book is compiled by a thread of its own, while inferences go on by the
    one that the robot says is in use.  Sessions of one `party` take turns on the
    processor as one, the inference that began first before the others.
    """

    def __init__(self, way: SendContext, cache: ProgramCache, received: Traffic,
                 reject: Callable[[str, str], None], log: Log, processor: Processor,
                 party: int) -> None:
        self.id, self.party, self.way, self.received = way.session, party, way, received
        self.cache, self.model, self.processor = cache, cache.model, processor
        self.log = log
        self.heard = time.monotonic()
        self.reassembler = Reassembler(self._expected)
        self.offered = OfferedBooks(cache, self._reply, reject, self._note, f'books-{self.id:x}')
        self._current: ServerRun | None = None
        self._newest = 0
        self._given_up = deque[int](maxlen=GIVEN_UP)
        self._work: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        threading.Thread(target=self._loop, name=f'session-{self.id:x}', daemon=True).start()

    @property
    def epochs(self) -> list[int]:
        """Epochs of the books that are compiled, the newest last."""
        return [version.epoch for version in self.offered.versions]

    @property
    def books(self) -> list[list[object]]:
        """Epochs and digests of the books that are compiled, the newest last."""
        return [[version.epoch, version.digest] for version in self.offered.versions]

    def agrees(self, digest: str, axis: int) -> bool:
        """Return whether the session was opened for this model and split axis."""
        return (digest, axis) == (self.model.digest, self.model.split.axis)

    def begin_anew(self, newest: int, encodings: frozenset[str]) -> None:
        """
        Take the robot's word for which inferences are over: it has greeted again.

        `encodings` are those that both sides have.
        """
        self._abandon('the robot greeted again')
        self._newest = newest
        self._given_up = deque((one for one in self._given_up if one <= newest), GIVEN_UP)
        self.way = replace(self.way, encodings=encodings)

    def close(self) -> None:
        """Stop the session's inference and its worker."""
        self._abandon('session closed')
        self.cache.stop()
        self._work.put(None)
        self.offered.stop()
        self.way.executor.close()

    def control(self, frame: Control) -> None:
        """Take a control frame of this session."""
        self.heard = time.monotonic()
        if frame.kind is ControlKind.BOOK:
            self.offered.offer(frame)
        elif frame.kind is ControlKind.CANCEL:
            self._cancel(frame)
        else:
            raise MalformedFrameError(f'a server takes no {frame.kind.name}', 'kind')

    def _cancel(self, frame: Control) -> None:
        if frame.inference > self._newest:
            raise MalformedFrameError(f'inference {frame.inference} has not begun', 'stale')
        if self._current and self._current.id == frame.inference:
            self._abandon('cancelled by the robot')

    def chunk(self, chunk: Chunk) -> None:
        """Take a chunk; the first one of an inference starts it."""
        self.heard = time.monotonic()
        if chunk.inference in self._given_up:
            return  # it was on its way
        current = self._current
        if current is None or current.id != chunk.inference:
            book = self.offered.find(chunk.epoch)
            if chunk.inference > self._newest:
                self._start(chunk, book)
            current = self._current
        if current is None or current.id != chunk.inference:
            raise MalformedFrameError(f'inference {chunk.inference} is over', 'stale')
        try:
            current.add(chunk)
        except MalformedFrameError as error:
            if error.cause == TAMPERED:
                self._tampered(current)
            raise

    def _tampered(self, run: ServerRun) -> None:
        """Give up an inference whose rows came in two versions, and say so."""
        self._abandon('rows came in two versions')
        self._reply(ControlKind.FAILED, run.epoch, run.id, {
            'reason': 'rows came in two versions: somebody speaks as the robot',
            'tampered': True})

    def _expected(self, chunk: Chunk) -> ExpectedTransfer | None:
        current = self._current
        return current.expected(chunk) if current else None

    def _start(self, chunk: Chunk, book: ScheduleBook) -> None:
        compiled = named_by(chunk, book, self.cache)  # before it ends the inference at hand
        self._abandon('a newer inference began')
        run = ServerRun(chunk, compiled, self.model.split, self.way, self.reassembler,
                        self.received)
        self._newest, self._current = chunk.inference, run
        turns = self.processor.turns(self.party)
        self._work.put(lambda: self._infer(run, turns))

    def _abandon(self, reason: str) -> None:
        current, self._current = self._current, None
        if current:
            self._given_up.append(current.id)
            current.abandon(reason)

    def _loop(self) -> None:
        steady = Steady(f'session {self.id:#x}', self.log)
        while (work := self._work.get()) is not None:
            steady.do(work, None)
        self.processor.forget(self.party)

    def _note(self, error: Exception) -> None:
        self.log(f'session {self.id:#x}: {type(error).__name__}: {error}')

    def _infer(self, run: ServerRun, turns: Turns) -> None:
        """Run the server's program; report times, or why it failed."""
        try:
            run.run(turns)
        except InferenceAbandonedError:
            self.cache.ran(run.compiled, run.recorder.events, complete=False)
            return
        except Exception as error:  # noqa: B902 - out of memory, a kernel's error: the robot goes on
            reason = f'{type(error).__name__}: {error}'
            self.log(f'inference {run.id} failed: {reason}')
            self._reply(ControlKind.FAILED, run.epoch, run.id, {'reason': reason[:500]})
            return
        finally:
            self._done(run)
        self.cache.ran(run.compiled, run.recorder.events)
        self._reply(ControlKind.REPORT, run.epoch, run.id, {
            'events': [e.to_list() for e in run.events]})

    def _done(self, run: ServerRun) -> None:
        """Let go of an inference that has ended."""
        if self._current is run:
            self._current = None
        run.forget()

    def _reply(self, kind: ControlKind, epoch: int, inference: int, body: Mapping[str, Any],
               ) -> None:
        self.way.channel.send(Control(kind, self.id, epoch, inference, body, self.way.server))
