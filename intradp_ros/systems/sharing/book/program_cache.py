# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""The programs of one side for every schedule of a book, compiled once."""
from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
import hashlib
import threading
import time

import torch

from intradp_ros.runtime.execution.fused_program import replayed
from intradp_ros.runtime.execution.interpreter import Execution
from intradp_ros.runtime.models.model import SharedModel
from intradp_ros.runtime.transport.mailbox import Mailbox
from intradp_ros.runtime.transport.sending import expected_transfer
from intradp_ros.runtime.transport.timeline import Event, Recorder, total
from intradp_ros.schedule.program import compile_program, Program
from intradp_ros.schedule.schedule import ROBOT, Schedule
from intradp_ros.split.local_operator import SplitGraph
from intradp_ros.systems.sharing.book.book import ScheduleBook
from intradp_ros.systems.sharing.book.watch import DriftWatch
from intradp_ros.systems.sharing.partition.lowering import lower
from intradp_ros.systems.sharing.partition.partition import Partition, RowStage

Stages = tuple[RowStage, ...]
COMPILE_BACKOFF = 3.0  # times as long as it compiles, `prepare` lets others go on


@dataclass(frozen=True)
class Compiled:
    """
    A schedule with one side's program for it, and the seconds its compute should take.

    `moving` are those that moving bytes may add.
    """

    schedule: Schedule
    program: Program
    seconds: float = 0.0
    moving: float = 0.0


class ProgramCache:
    """
    Compiles partitions for one side and keeps what it compiled.

    Neighbouring bandwidths often share a partition, so the key is the
    partition and not the schedule id; and a program does not depend on
    encodings, so partitions with the same stages share it.  With a watch it
    is known what they should take.  Caches that share the lock `compiling`
    compile one partition at a time.  On an accelerator every program runs once
    when it is compiled: kernels are loaded there when they are first called;
    what they compute between messages is recorded then, if it can be replayed.
    """

    def __init__(self, model: SharedModel, side: str, watch: DriftWatch | None = None,
                 compiling: threading.Lock | None = None) -> None:
        self._compiling = compiling or threading.Lock()
        self._stopped = False
        self.model, self.side, self.watch = model, side, watch
        self._compiled: dict[Partition, Compiled] = {}
        self._programs: dict[Stages, Program] = {}
        self._lock = threading.Lock()

    def get(self, partition: Partition) -> Compiled:
        """
        Return the compiled schedule of a partition.

        :raises ValueError: if the partition does not fit the graph.
        """
        found = self._compiled.get(partition)
        if found:  # without waiting for another that is being compiled
            return found
        with self._lock:
            if partition not in self._compiled:
                self._compiled[partition] = self._compile(partition)
            return self._compiled[partition]

    def ran(self, compiled: Compiled, events: Iterable[Event], complete: bool = True) -> None:
        """Let the watch know what this side's compute took in one inference."""
        if self.watch:
            self.watch.ran(total(events, self.side, 'compute'), compiled.seconds, complete,
                           compiled.moving)

    def prepare(self, *books: ScheduleBook, gently: bool = False) -> None:
        """
        Compile every schedule of some books, and forget those of all others.

        Do it `gently` while inferences go on: they have the processor, and
        Python, to themselves most of the time.
        """
        kept = {}
        for partition in _partitions(*books):
            if self._stopped:
                raise RuntimeError('the session has ended')
            with self._compiling:
                start = time.monotonic()
                kept[partition] = self.get(partition)
            if gently:
                time.sleep(COMPILE_BACKOFF * (time.monotonic() - start))
        with self._lock:
            self._compiled = kept
            self._programs = {p.stages: compiled.program for p, compiled in kept.items()}

    def stop(self) -> None:
        """Make a `prepare` that is in flight give up."""
        self._stopped = True

    def fingerprint(self, book: ScheduleBook) -> str:
        """Return what this side makes of a book, for comparison with the other (`fingerprint`)."""
        return fingerprint(self.model.split,
                           (self.get(p).schedule for p in _partitions(book)))

    def _compile(self, partition: Partition) -> Compiled:
        split, schedule = self.model.split, lower(self.model.split, partition)
        if partition.stages not in self._programs:
            program = compile_program(split, schedule, self.side, self.model.parameters,
                                      delivers=self.side == ROBOT)
            if split.device.runs_ahead:
                program = _warmed(split, schedule, self.side, program)
            self._programs[partition.stages] = program
        if self.watch is None:
            return Compiled(schedule, self._programs[partition.stages])
        return Compiled(schedule, self._programs[partition.stages],
                        self.watch.expected(split, schedule, self.side),
                        self.watch.moving(split, schedule, self.side))


def _partitions(*books: ScheduleBook) -> Iterable[Partition]:
    """Return the partitions of some books, each once."""
    return dict.fromkeys(entry.partition for book in books for entry in book.entries)


def _warmed(split: SplitGraph, schedule: Schedule, side: str, program: Program) -> Program:
    """Return a program that has run once, and is replayed where that is faster."""
    warm_up = partial(_run_on_zeros, split, schedule, side)
    if split.device.replays:
        with torch.inference_mode():
            return replayed(program, warm_up)
    warm_up(program)
    return program


def _run_on_zeros(split: SplitGraph, schedule: Schedule, side: str, program: Program) -> None:
    """Run one side's program on zeros; what it would send goes nowhere."""
    mailbox = Mailbox(lambda waited: 'nothing else comes')
    for index in range(len(schedule.transfers)):
        expected = expected_transfer(split, schedule, index, side)
        if expected:
            mailbox.deliver(index, torch.zeros(expected.shape, dtype=expected.dtype))
    execution = Execution(program, Recorder(side), mailbox, lambda index, rows: None)
    inputs = [split.graph.values[v] for v in program.inputs]
    with suppress(Exception):  # a kernel may take no zeros; the inference itself will show
        execution.run({value.id: torch.zeros(value.shape, dtype=value.dtype) for value in inputs})


def fingerprint(split: SplitGraph, schedules: Iterable[Schedule]) -> str:
    """
    Return a SHA-256 (hex) of a graph as it runs and of the transfers of some schedules.

    Each side lowers a book by itself; another release may order operators otherwise, take
    reductions apart otherwise, or cut other bands.  Where it is equal on two sides, they mean
    the same by every transfer:
    the same rows of the same value, or records of the same operators.  It
    does not depend on parameters (the model's digest does), devices, or the
    kernels that a side has chosen.
    """
    graph = split.graph
    content = hashlib.sha256()
    for op in graph.operators:
        content.update(repr((op.target, op.inputs, op.outputs)).encode())
    for value in graph.values:
        facts = (value.shape, str(value.dtype), split.dims[value.id], split.rows[value.id],
                value.id in split.folded)
        content.update(repr(facts).encode())
    for schedule in schedules:
        content.update(repr([
            (t.value, t.region.start, t.region.stop, t.source, t.target, t.encoding)
            for t in schedule.transfers]).encode())
    return content.hexdigest()
