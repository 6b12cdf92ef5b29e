# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""One inference on the robot, shared with the server by a schedule."""
from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
import time

import torch

from intradp_ros.runtime.execution.interpreter import Execution
from intradp_ros.runtime.execution.processor import Turns
from intradp_ros.runtime.execution.recovery import finish_alone
from intradp_ros.runtime.execution.straggler_mitigation import StragglerMitigation
from intradp_ros.runtime.transport.arrivals import Arrivals
from intradp_ros.runtime.transport.mailbox import Mailbox
from intradp_ros.runtime.transport.sending import (
    describe_transfers,
    expected_transfer,
    SendContext,
    Sender,
)
from intradp_ros.runtime.transport.timeline import Event, Recorder, RECOVERY
from intradp_ros.runtime.transport.traffic import Traffic
from intradp_ros.schedule.schedule import ROBOT
from intradp_ros.split.local_operator import SplitGraph
from intradp_ros.systems.sharing.book.program_cache import Compiled
from intradp_ros.systems.sharing.policy.patience import WaitPolicy
from intradp_ros.systems.sharing.policy.schedule_decision import ScheduleDecision
from intradp_ros.wire.chunking import ExpectedTransfer, Reassembler
from intradp_ros.wire.frames import Chunk, Stamp

Values = dict[int, torch.Tensor]


class TamperedError(RuntimeError):
    """Rows that came from outside cannot be trusted, nor anything computed from them."""


@dataclass(frozen=True)
class Paths:
    """How rows go to the server, and where those that come are put together and counted."""

    way: SendContext
    reassembler: Reassembler
    received: Traffic


class SharedRun:
    """
    Runs the robot's program of a schedule to the end, by plan or by itself.

    `report` holds what the server says that it did; rows that came in two
    versions mark the run as `tampered`.  Once it has ended it holds no rows:
    it stays at hand until the next one, for frames that come late.
    """

    def __init__(self, number: int, selection: ScheduleDecision, compiled: Compiled,
                 split: SplitGraph, paths: Paths, waiting: WaitPolicy, stamp: Stamp,
                 turns: Turns | None) -> None:
        self.id, self.selection, self.compiled = number, selection, compiled
        self.start, self.report, self.tampered = waiting.start, list[Event](), False
        self._split, schedule = split, compiled.schedule
        names = describe_transfers(split, schedule)
        self.arrivals = Arrivals(Mailbox(waiting.stop, lambda: self._catch_up.changed()),
                                 paths.reassembler, 'downlink', names, paths.received)
        self._sender = Sender(paths.way, schedule, selection.epoch, number, selection.index,
                              stamp, 'uplink', names, self.arrivals.mailbox.fail)
        self.recorder = Recorder(ROBOT)
        execution = Execution(compiled.program, self.recorder, self.arrivals.mailbox,
                              self._sender, turns)
        self._catch_up = StragglerMitigation(split, execution, schedule, waiting.work)

    def run(self, inputs: Mapping[int, torch.Tensor]) -> Values:
        """
        Return the graph's output values; `overtaken` says whether they are the robot's own.

        :raises InferenceAbandonedError: if it is not worth waiting any longer: `finish` it.
        :raises TamperedError: if rows came in two versions.
        """
        values = self._catch_up.run(inputs)
        self._catch_up.forget()
        self.check_rows()
        return values

    def stop(self) -> None:
        """Send nothing more."""
        self._sender.stop()

    def check_rows(self) -> None:
        """Raise TamperedError if rows came in two versions."""
        if self.tampered:
            raise TamperedError('rows came in two versions, of which one is false')

    def finish(self, inputs: Mapping[int, torch.Tensor],
               parameters: Mapping[str, torch.Tensor]) -> Values:
        """Compute what is missing from the rows at hand."""
        begin = time.monotonic()
        values = finish_alone(self._split, self._catch_up.held(inputs), parameters)
        self._catch_up.forget()
        self.recorder.events.append(Event(ROBOT, 'compute', RECOVERY, begin, time.monotonic()))
        return values

    @property
    def overtaken(self) -> str:
        """Why the robot had the result before the rows came; empty if all went by plan."""
        return self._catch_up.reason

    @property
    def met(self) -> bool:
        """Whether some of the rows were the robot's own, and some the server's."""
        return self._catch_up.met

    @property
    def crossed(self) -> tuple[int, int]:
        """Bytes that were sent, and that came."""
        return self._sender.nbytes, self.arrivals.nbytes

    @property
    def events(self) -> list[Event]:
        """What the robot measured."""
        return [*self.recorder.events, *self._catch_up.events, *self.arrivals.events,
                *self._sender.events]

    def expected(self, chunk: Chunk) -> ExpectedTransfer | None:
        """Return what a chunk must be a piece of; None if it belongs to no transfer of this."""
        if (chunk.inference, chunk.epoch, chunk.schedule) != \
                (self.id, self.selection.epoch, self.selection.index):
            return None
        return expected_transfer(self._split, self.compiled.schedule, chunk.transfer, ROBOT)
