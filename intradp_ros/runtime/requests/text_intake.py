# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""
Requests are made ready on a few threads: templates, tokens and grammars may take seconds.

One client's requests are made ready one after another, and clients take turns: who sends what
is costly waits for itself.  Those with a schema have a thread of their own.
"""
from __future__ import annotations

from collections import deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
import math
import threading
import time

from intradp_ros.core.owned_errors import ends_process, reason_of
from intradp_ros.runtime.requests.admission import Fate
from intradp_ros.runtime.requests.text_requests import Piece, TextEnd, TextModel, TextRequest

Heard = Callable[[Piece | TextEnd], None]
#: Threads for requests without a schema, and with one.
THREADS = (4, 1)
#: Requests that wait to be made ready, of all clients and of one.
WAITING, PER_CLIENT = 256, 32
#: Seconds of waiting that shorten what is left until a deadline.
_NOTICED = 0.1


@dataclass(eq=False)
class _Waiting:
    """A request on its way to the model."""

    request: TextRequest
    heard: Heard
    wrong: Callable[[str], None]
    asked: float
    cancel: Callable[[Fate], None] | None = None
    ended: Fate | None = None

    @property
    def deadline(self) -> float:
        """Return when its answer is of no use any more."""
        return self.asked + self.request.remaining


class TextIntake:
    """Takes requests for a model at once, from any thread; see `TextModel` for what is heard."""

    def __init__(self, model: TextModel) -> None:
        self.model = model
        self._changed = threading.Condition()
        self._waiting: tuple[dict[str, deque[_Waiting]], ...] = ({}, {})  # by client, in turns
        self._busy: set[tuple[int, str]] = set()  # kind and client of what is made ready
        self._threads = [0, 0]
        self._watched = self._closed = False

    @property
    def name(self) -> str:
        """The model's name."""
        return self.model.name

    def submit(self, request: TextRequest, heard: Heard, wrong: Callable[[str], None],
               ) -> Callable[[Fate], None]:
        """
        Take a request; what is returned ends it early.

        `wrong` is called with the reason, and nothing is heard, if it cannot be understood.
        """
        new = _Waiting(request, heard, wrong, time.monotonic())
        lines = self._waiting[bool(request.schema)]
        with self._changed:
            line = lines.get(request.client, deque())
            count = sum(len(other) for each in self._waiting for other in each.values())
            full = count >= WAITING or len(line) >= PER_CLIENT
            if not full and not self._closed:
                lines.setdefault(request.client, line).append(new)
                self._start_threads(bool(request.schema), math.isfinite(new.deadline))
                self._changed.notify_all()
                return lambda fate: self._end(new, fate, 'ended by its client')
        heard(TextEnd(Fate.REFUSED, f'{count} requests wait to be made ready' if full else
                      'the model stops'))
        return lambda fate: None

    def close(self) -> None:
        """Refuse what waits, and take nothing more; what is made ready goes on."""
        with self._changed:
            self._closed = True
            waiting = [new for lines in self._waiting for line in lines.values() for new in line]
            self._changed.notify_all()
        for new in waiting:
            self._end(new, Fate.REFUSED, 'the model stops')

    def _end(self, new: _Waiting, fate: Fate, reason: str) -> None:
        """End a request, wherever it is by now."""
        with self._changed:
            cancel, first = new.cancel, new.ended is None
            new.ended = new.ended or fate
            lines = self._waiting[bool(new.request.schema)]
            line = lines.get(new.request.client, deque())
            waits = new in line
            if waits:
                line.remove(new)
                if not line:
                    del lines[new.request.client]
        if cancel:
            cancel(fate)
        elif waits and first:
            new.heard(TextEnd(fate, reason, seconds=time.monotonic() - new.asked))

    def _start_threads(self, kind: int, watched: bool) -> None:
        """Start threads for what waits, as many as there may be; they end when nothing does."""
        if self._threads[kind] < THREADS[kind]:
            self._threads[kind] += 1
            threading.Thread(target=self._work, args=(kind,), daemon=True, name='intake').start()
        if watched and not self._watched:
            self._watched = True
            threading.Thread(target=self._expire, daemon=True, name='intake-deadlines').start()

    def _work(self, kind: int) -> None:
        while True:
            with self._changed:
                client = self._next(kind)
                if client is None:
                    self._threads[kind] -= 1
                    return
                lines = self._waiting[kind]
                line = lines.pop(client)
                new = line.popleft()
                if line:
                    lines[client] = line  # behind all others
                self._busy.add((kind, client))
            try:
                self._make_ready(new)
            except BaseException as error:  # noqa: B902 - of who asked: not this thread's
                if ends_process(error):
                    raise
            finally:
                with self._changed:
                    self._busy.discard((kind, client))

    def _next(self, kind: int) -> str | None:
        """Return the client whose turn it is."""
        return next((client for client in self._waiting[kind]
                     if (kind, client) not in self._busy), None)

    def _make_ready(self, new: _Waiting) -> None:
        request, waited = new.request, time.monotonic() - new.asked
        if waited > _NOTICED:
            request = replace(request, remaining=max(0.0, request.remaining - waited))
        try:
            cancel = self.model.submit(request, new.heard)
        except ValueError as error:
            new.wrong(reason_of(error))
            return
        except BaseException as error:  # noqa: B902 - the request's
            if ends_process(error):
                raise
            new.heard(TextEnd(Fate.REFUSED, reason_of(error)))
            return
        with self._changed:
            new.cancel, ended = cancel, new.ended
        if ended is not None:
            cancel(ended)

    def _expire(self) -> None:
        """End what waits past its deadline."""
        while True:
            now = time.monotonic()
            with self._changed:
                waiting = [new for lines in self._waiting for line in lines.values()
                           for new in line if math.isfinite(new.deadline)]
                if not waiting:
                    self._watched = False
                    return
            for new in waiting:
                if new.deadline <= now:
                    with suppress(Exception):  # of who asked
                        self._end(new, Fate.LATE, 'late before it was made ready')
            nearest = min(new.deadline for new in waiting)
            with self._changed:
                self._changed.wait(max(0.0, nearest - now))


def intake_of(model: TextModel | TextIntake) -> TextIntake:
    """Return what takes requests for a model: itself, if it does so already."""
    return model if isinstance(model, TextIntake) else TextIntake(model)
