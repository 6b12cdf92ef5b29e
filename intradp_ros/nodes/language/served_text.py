# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""
A language model that comes and goes with plans, for clients that stay.

Requests go to the head of the plan in use.  Where there is none they are
held until there is one, or refused, as the user says.
"""
from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
import math
import threading
import time

from intradp_ros.core.owned_errors import ends_process, reason_of
from intradp_ros.runtime.requests.admission import Fate
from intradp_ros.runtime.requests.text_requests import Piece, TextEnd, TextModel, TextRequest

Heard = Callable[[Piece | TextEnd], None]
NO_PLAN = 'no plan is in use: its devices are not all there, or none fits'
#: Requests that are held at most.
MAX_HELD = 256


@dataclass(eq=False)
class _Held:
    """A request without a model: since when, and how it ends once it has gone to one."""

    request: TextRequest
    heard: Heard
    since: float
    cancel: Callable[[Fate], None] | None = None
    timer: threading.Timer | None = None
    #: The fate of a request that ended before a model was there.
    ended: Fate | None = None


class ServedText:
    """A `TextModel` whose model is set from outside; safe to call from any thread."""

    def __init__(self, name: str, hold: bool) -> None:
        self._name, self._hold = name, hold
        self._model: TextModel | None = None
        self._held: list[_Held] = []
        self._lock = threading.Lock()

    @property
    def name(self) -> str:
        """The name of the model in use, or of the last one, or else the one that was given."""
        return self._name

    @property
    def model(self) -> TextModel | None:
        """The model in use."""
        return self._model

    @property
    def held(self) -> int:
        """Return how many requests wait for a model."""
        return len(self._held)

    def set(self, model: TextModel | None) -> None:
        """Send requests to a model from now on, those that are held too; None: to none."""
        with self._lock:
            self._model = model
            if model:  # clients name it while a loss leaves none, too
                self._name = model.name
            waiting, self._held = (self._held, []) if model else ([], self._held)
        if model and waiting:  # making them ready may take long: who sets the model goes on
            threading.Thread(target=self._send, args=(model, waiting), daemon=True,
                             name='held-requests').start()

    def _send(self, model: TextModel, waiting: list[_Held]) -> None:
        """Send requests that were held to a model."""
        for held in waiting:
            with self._lock:
                if held.timer:
                    held.timer.cancel()
                if held.ended is not None:
                    continue
            now = time.monotonic()
            remaining = held.request.remaining - (now - held.since)
            try:
                cancel = model.submit(replace(held.request, remaining=max(0.0, remaining)),
                                      held.heard)
            except BaseException as error:  # noqa: B902 - its own: the others go on
                if ends_process(error):
                    raise
                _say(held, TextEnd(Fate.REFUSED, reason_of(error)))
                continue
            with self._lock:
                held.cancel = cancel
                late = held.ended
            if late is not None:
                cancel(late)

    def submit(self, request: TextRequest, heard: Heard) -> Callable[[Fate], None]:
        """Take a request; see `TextModel`."""
        with self._lock:
            model = self._model
            if model is None and self._hold and len(self._held) < MAX_HELD:
                held = _Held(request, heard, time.monotonic())
                self._held.append(held)
                if math.isfinite(request.remaining):
                    held.timer = threading.Timer(request.remaining, self._end, (held, Fate.LATE))
                    held.timer.daemon = True
                    held.timer.start()
                return lambda fate: self._end(held, fate)
        if model is None:
            heard(TextEnd(Fate.REFUSED, NO_PLAN))
            return lambda fate: None
        return model.submit(request, heard)

    def close(self) -> None:
        """Refuse what is held."""
        self.set(None)
        for held in list(self._held):
            self._end(held, Fate.REFUSED)

    def _end(self, held: _Held, fate: Fate) -> None:
        """End a request, wherever it is by now."""
        with self._lock:
            cancel, first = held.cancel, held.ended is None
            held.ended = held.ended or fate
            waits = held in self._held
            if waits:
                self._held.remove(held)
                if held.timer:
                    held.timer.cancel()
        if cancel:
            cancel(fate)
        elif waits and first:
            _say(held, TextEnd(fate, NO_PLAN, seconds=time.monotonic() - held.since))


def _say(held: _Held, end: TextEnd) -> None:
    """Say how a request ended; an error of who hears it is its own."""
    try:
        held.heard(end)
    except BaseException as error:  # noqa: B902
        if ends_process(error):
            raise
