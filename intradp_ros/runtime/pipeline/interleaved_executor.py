# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""The thread on which a device computes: several inferences, one operator at a time."""
from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
import threading
import time

import torch

from intradp_ros.core.steady import Steady
from intradp_ros.runtime.execution.interpreter import Execution, SendTransfer
from intradp_ros.runtime.transport.mailbox import Mailbox
from intradp_ros.runtime.transport.timeline import Recorder
from intradp_ros.schedule.program import Program

Outputs = Mapping[int, torch.Tensor]
Done = Callable[['ProgramRun', Outputs | None, Exception | None], None]


@dataclass
class ProgramRun:
    """
    One program's run for one inference.

    `done` is called on the executor's thread with the outputs, or with what
    the run failed with.
    """

    inference: int
    program: Program
    mailbox: Mailbox
    send: SendTransfer
    inputs: Outputs
    done: Done
    lane: str = ''
    since: float = field(default_factory=time.monotonic)
    execution: Execution | None = None

    @property
    def ready(self) -> bool:
        """Whether it can go on."""
        execution = self.execution
        return execution is None or execution.awaited is None \
            or self.mailbox.holds(execution.awaited)

    def proceed(self, between: Callable[[], None]) -> bool:
        """
        Compute until a transfer is missing; return whether the program has ended.

        The first call sends the inputs that others wait for, and computes
        nothing.  `between` is called before each operator.
        """
        if self.execution is not None:
            return self.execution.advance()
        self.execution = Execution(self.program, Recorder(self.lane), self.mailbox, self.send,
                                   between=between)
        self.execution.begin(self.inputs, self.since)
        self.execution.send_first()
        return False


class InterleavedExecutor:
    """
    Runs the programs of several inferences on one thread, the oldest that can go on first.

    A run gives the thread up where it awaits a transfer that is not there,
    and at its end: the order of whole stages is that of the inferences.  Only
    the inputs of a new one leave before the next operator of an older one:
    other devices wait for them, and sending takes no time of this one.
    """

    def __init__(self, name: str) -> None:
        self.busy = 0.0  # seconds of turns since the start
        self._runs: list[ProgramRun] = []
        self._calls: list[Callable[[], None]] = []
        self._closed = False
        self._changed = threading.Condition()
        self._thread = threading.Thread(target=self._work, name=name, daemon=True)
        self._thread.start()

    def start(self, run: ProgramRun) -> None:
        """Let a run take its turns; it is forgotten when it has ended."""
        with self._changed:
            self._runs.append(run)
            self._changed.notify()

    def call(self, function: Callable[[], None]) -> None:
        """Call a function between runs; it must catch its own errors."""
        with self._changed:
            self._calls.append(function)
            self._changed.notify()

    def wake(self) -> None:
        """Hear that something came for a run."""
        with self._changed:
            self._changed.notify()

    def close(self) -> None:
        """End the thread after the turn at hand."""
        with self._changed:
            self._closed = True
            self._changed.notify()
        if threading.current_thread() is not self._thread:
            self._thread.join()

    def _work(self) -> None:
        steady = Steady(self._thread.name)
        with torch.inference_mode():
            while (turn := self._next()) is not None:
                start = time.monotonic()
                steady.do(turn, None)
                self.busy += time.monotonic() - start

    def _next(self) -> Callable[[], None] | None:
        with self._changed:
            while not self._closed:
                if self._calls:
                    return self._calls.pop(0)
                ready = [run for run in self._runs if run.ready]
                if ready:
                    first = min(ready, key=lambda r: (r.execution is not None, r.inference))
                    return lambda: self._turn(first)
                self._changed.wait()
        return None

    def _send_new(self) -> None:
        """Let the inputs of new inferences leave."""
        for run in [run for run in self._runs if run.execution is None]:
            self._turn(run)

    def _turn(self, run: ProgramRun) -> None:
        error: Exception | None = None
        try:
            if not run.proceed(self._send_new):
                return
            outputs = run.execution.outputs() if run.execution else {}
        except Exception as failure:  # noqa: B902 - one bad inference must not end the thread
            error, outputs = failure, {}
        with self._changed:
            self._runs = [other for other in self._runs if other is not run]
        run.done(run, None if error else outputs, error)
