# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""One inference that the server takes part in."""
from __future__ import annotations

from intradp_ros.runtime.execution.interpreter import Execution
from intradp_ros.runtime.execution.processor import Turns
from intradp_ros.runtime.transport.arrivals import Arrivals
from intradp_ros.runtime.transport.mailbox import Mailbox
from intradp_ros.runtime.transport.sending import (
    describe_transfers,
    expected_transfer,
    SendContext,
    Sender,
)
from intradp_ros.runtime.transport.timeline import Event, Recorder
from intradp_ros.runtime.transport.traffic import Traffic
from intradp_ros.schedule.schedule import SERVER
from intradp_ros.split.local_operator import SplitGraph
from intradp_ros.systems.sharing.book.book import ScheduleBook
from intradp_ros.systems.sharing.book.program_cache import Compiled, ProgramCache
from intradp_ros.wire.chunking import check_chunk, ExpectedTransfer, Reassembler
from intradp_ros.wire.frames import Chunk, MalformedFrameError

ROBOT_SILENCE = 5.0  # seconds without a chunk after which an inference is given up


def named_by(chunk: Chunk, book: ScheduleBook, cache: ProgramCache) -> Compiled:
    """
    Return the compiled schedule that a chunk names.

    :raises MalformedFrameError: if the book has no such schedule, or the chunk is not a piece of
        its transfers.
    """
    entries = book.entries
    if chunk.schedule >= len(entries):
        raise MalformedFrameError(
            f'schedule {chunk.schedule}, the table has {len(entries)}', 'schedule')
    compiled = cache.get(entries[chunk.schedule].partition)
    expected = expected_transfer(cache.model.split, compiled.schedule, chunk.transfer, SERVER)
    if expected is None:
        raise MalformedFrameError(
            f'schedule {chunk.schedule} has no transfer {chunk.transfer} to the server',
            'unexpected')
    check_chunk(chunk, expected)
    return compiled


class ServerRun:
    """Runs the server's program of the schedule that the `first` chunk of an inference names."""

    def __init__(self, first: Chunk, compiled: Compiled, split: SplitGraph, way: SendContext,
                 reassembler: Reassembler, received: Traffic) -> None:
        self.id, self.epoch, self.compiled = first.inference, first.epoch, compiled
        self._schedule_id, self._split, self._reassembler = first.schedule, split, reassembler
        names = describe_transfers(split, compiled.schedule)
        self.recorder = Recorder(SERVER)
        self._arrivals = Arrivals(Mailbox(_robot_patience), reassembler, 'uplink', names, received)
        self._sender = Sender(way, compiled.schedule, first.epoch, first.inference,
                              first.schedule, first.stamp, 'downlink', names,
                              self._arrivals.mailbox.fail)

    def add(self, chunk: Chunk) -> None:
        """Take rows; raises MalformedFrameError if they are not what is expected."""
        self._arrivals.add(chunk)

    def run(self, turns: Turns) -> None:
        """Compute and send; raises InferenceAbandonedError if the robot is silent or gave up."""
        self.recorder = Recorder(SERVER)  # from now on: the worker may have been busy till here
        Execution(self.compiled.program, self.recorder, self._arrivals.mailbox, self._sender,
                  turns).run({})

    def abandon(self, reason: str) -> None:
        """Let the run end, and send nothing more."""
        self._arrivals.mailbox.fail(reason)
        self._sender.stop()
        self.forget()

    def forget(self) -> None:
        """Let go of the rows that came; what still comes is stale."""
        self._reassembler.drop(self.id)

    def expected(self, chunk: Chunk) -> ExpectedTransfer | None:
        """Return what a chunk must be a piece of; None if it belongs to no transfer of this."""
        if (chunk.inference, chunk.epoch, chunk.schedule) != \
                (self.id, self.epoch, self._schedule_id):
            return None
        return expected_transfer(self._split, self.compiled.schedule, chunk.transfer, SERVER)

    @property
    def events(self) -> list[Event]:
        """What the server measured."""
        return [*self.recorder.events, *self._arrivals.events, *self._sender.events]


def _robot_patience(waited: float) -> str | None:
    return 'the robot is silent' if waited > ROBOT_SILENCE else None
