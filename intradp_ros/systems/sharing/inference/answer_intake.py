# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""Takes the answers of a shared inference: one that comes too late is dropped."""
from __future__ import annotations

from collections import deque
import time

from intradp_ros.runtime.transport.timeline import Event
from intradp_ros.systems.sharing.inference.shared_run import SharedRun
from intradp_ros.wire.chunking import ExpectedTransfer, Reassembler
from intradp_ros.wire.frames import Chunk, Control, MalformedFrameError
from intradp_ros.wire.sanitise import quoted

#: Inferences given up of which rows may be on their way.
GIVEN_UP = 8


class AnswerIntake:
    """
    Takes the frames of one inference at a time, from the receive thread.

    `newest` is the number of the last inference begun, alone or shared.
    """

    def __init__(self) -> None:
        self.newest = 0
        self.reassembler = Reassembler(self._expected, max_inferences=1)
        self._run: SharedRun | None = None
        self._given_up = deque[int](maxlen=GIVEN_UP)

    def begin(self, run: SharedRun) -> None:
        """Take what comes for this inference from now on."""
        self._run = run

    def drop(self, given_up: bool = False) -> None:
        """Take nothing more; what is on its way is no fault if the inference is `given_up`."""
        if given_up and self._run:
            self._given_up.append(self._run.id)
        self._run = None

    def chunk(self, chunk: Chunk) -> None:
        """Take rows; raises MalformedFrameError if they are not what is expected."""
        if chunk.inference not in self._given_up:
            self._of(chunk).arrivals.add(chunk)

    def failed(self, frame: Control) -> None:
        """Take the server's word that it failed; raises MalformedFrameError if it is stale."""
        if not self._too_late(frame):
            reason, run = quoted(frame.body.get('reason')), self._of(frame)
            run.tampered |= frame.body.get('tampered') is True
            run.arrivals.mailbox.fail(f'server: {reason}')

    def reported(self, frame: Control, offset: float) -> SharedRun | None:
        """
        Keep what the server did in the newest inference, moved to the robot's clock.

        Returns that inference; None if it was over before.  Raises
        MalformedFrameError if the report is stale, or none.
        """
        if self._too_late(frame):
            return None
        run = self._of(frame)
        try:
            events = [Event.from_list(e).shift(-offset) for e in frame.body.get('events', ())]
        except (TypeError, ValueError) as error:
            raise MalformedFrameError(f'bad report: {error}', 'report') from error
        run.report = events
        return run

    def tampered(self) -> None:
        """Let the inference, if there is one, end without the rows that came."""
        run = self._run
        if run:
            run.tampered = True
            run.arrivals.mailbox.fail('rows came in two versions')

    def report(self, timeout: float) -> tuple[Event, ...]:
        """Wait for the server's report; return its events in seconds from the start, if any."""
        run, end = self._run, time.monotonic() + timeout
        while run and not run.report and time.monotonic() < end:
            time.sleep(0.005)
        return tuple(e.shift(-run.start) for e in run.report) if run else ()

    def _expected(self, chunk: Chunk) -> ExpectedTransfer | None:
        run = self._run
        return run.expected(chunk) if run else None

    def _too_late(self, frame: Control) -> bool:
        """Return whether the robot had finished the inference before the server said this."""
        run = self._run
        return frame.inference <= self.newest and (run is None or frame.inference != run.id)

    def _of(self, frame: Chunk | Control) -> SharedRun:
        """Return the inference at hand if the frame belongs to it."""
        run = self._run
        if run is None or frame.inference != run.id:
            raise MalformedFrameError(f'inference {frame.inference} is over', 'stale')
        return run
