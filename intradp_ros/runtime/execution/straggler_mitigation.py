# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""
What a side does while rows are late: it computes them by itself, the last ones first.

A robot that waits has nothing else to do.  So where an awaited transfer is
late it computes rows that the server owes it, beginning with those that would
come last, and still takes what comes: the two meet in the middle.  Its own rows
take the place of transfers, and the program goes on by plan as soon as it
can.  It is exact: both sides compute from the same rows by the same operators.
"""
from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
import time

import torch

from intradp_ros.runtime.execution.interpreter import Execution
from intradp_ros.runtime.execution.local_catch_up import owed, steps_to, stride
from intradp_ros.runtime.execution.recovery import Held, held_pieces, rows_for
from intradp_ros.runtime.transport.mailbox import InferenceAbandonedError
from intradp_ros.runtime.transport.timeline import CATCH_UP, Event
from intradp_ros.schedule.schedule import Schedule, SERVER, Transfer
from intradp_ros.split.local_operator import SplitGraph
from intradp_ros.split.regions.region import Region

Late = Callable[[float], str | None]


@dataclass
class StragglerMitigation:
    """
    Runs one side's program to the end, with own rows in the place of late ones.

    `late` says after how many seconds of waiting a transfer is late and why;
    from then on it waits no more.  `reason` is why, if the robot computed all
    that was still owed then, else empty; `met` means that some of it
    came and some was its own.  `events` are what it computed for that;
    `changed` must be called when a transfer came.
    """

    split: SplitGraph
    execution: Execution
    schedule: Schedule
    late: Late
    reason: str = ''
    met: bool = False
    events: list[Event] = field(default_factory=list)
    _why: str = ''
    _owed: tuple[Transfer, ...] = ()  # when it began to work by itself
    _mine: set[int] = field(default_factory=set)
    _made: list[tuple[int, Region, torch.Tensor]] = field(default_factory=list)
    _own: Execution | None = None

    def __post_init__(self) -> None:
        """Keep what is sent: it is what the other side computes from."""
        send = self.execution.send

        def keeping(transfer: int, rows: torch.Tensor) -> None:
            sent = self.schedule.transfers[transfer]
            self._made.append((sent.value, sent.region, rows))
            send(transfer, rows)
        self.execution.send = keeping

    def run(self, inputs: Mapping[int, torch.Tensor]) -> dict[int, torch.Tensor]:
        """
        Run to the end and return the graph's output values.

        :raises InferenceAbandonedError: if the mailbox says that the inference is over.
        """
        execution = self.execution
        with torch.inference_mode():
            execution.begin(inputs, time.monotonic())
            while not execution.advance():
                self._wait(inputs)
        came = {t.id for t in self._owed} - self._mine
        self.met = bool(self._mine and came)
        self.reason = self._why if self._mine and not came else ''
        return execution.outputs()

    def changed(self) -> None:
        """Go on by plan if what came is enough for that."""
        own = self._own
        if own and self.execution.ready:
            own.mailbox.fail('rows came')

    def _wait(self, inputs: Mapping[int, torch.Tensor]) -> None:
        """Wait for the awaited transfer; where it is late, compute some of what is owed."""
        execution, start = self.execution, time.monotonic()
        awaited = execution.awaited
        assert awaited is not None
        why = execution.mailbox.wait(awaited, self._late)
        execution.recorder.waited(str(awaited), start, time.monotonic())
        if why:
            missing = self._missing()
            if not self._why:
                self._why, self._owed = why, missing
            self._work(inputs, stride(missing, self.split.folded))

    def _late(self, waited: float) -> str | None:
        return self._why or self.late(waited)

    def _missing(self) -> tuple[Transfer, ...]:
        """Return what is owed and not there, in the order in which it is sent."""
        wanted = self.execution.pending - self.execution.mailbox.left().keys()
        return tuple(t for t in owed(self.schedule, SERVER) if t.id in wanted)

    def _work(self, inputs: Mapping[int, torch.Tensor], wanted: Sequence[Transfer]) -> None:
        """Compute the rows of some transfers, unless the program can go on before."""
        start, held = time.monotonic(), self.held(inputs)
        own = rows_for(self.split, held, steps_to(self.split, held, wanted), self.schedule,
                       wanted, self._deliver)
        self._own = own
        self.changed()  # it may have come meanwhile
        try:
            own.run({})
        except InferenceAbandonedError:
            pass  # the program goes on, or it will say why it must not
        finally:
            self._own, end = None, time.monotonic()
            self._made += held_pieces(own)[len(held):]
            lane = self.execution.recorder.lane
            self.events.append(Event(lane, 'compute', CATCH_UP, start, end))
            self.execution.recorder.waited(str(self.execution.awaited), end, end)

    def _deliver(self, transfer: int, rows: torch.Tensor) -> None:
        if transfer not in self.execution.mailbox.left():
            self._mine.add(transfer)
            self.execution.mailbox.deliver(transfer, rows)

    def forget(self) -> None:
        """Let go of all rows that are kept for own work; there is none after this."""
        self._made.clear()
        self.execution.slots[:] = [None] * len(self.execution.slots)

    def held(self, inputs: Mapping[int, torch.Tensor]) -> Held:
        """Return all rows at hand: inputs, what was computed, sent, and what has come."""
        split, transfers = self.split, self.schedule.transfers
        came = self.execution.mailbox.left().items()
        return [*((v, split.whole(v), t) for v, t in inputs.items()),
                *held_pieces(self.execution), *self._made,
                *((transfers[i].value, transfers[i].region, t) for i, t in came)]
