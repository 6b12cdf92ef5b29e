# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""The programs of one side for every schedule of a book, compiled once."""
from __future__ import annotations

from dataclasses import dataclass
import threading

from intradp_ros.execution.model import SharedModel
from intradp_ros.execution.program import compile_program, Program
from intradp_ros.planning.book import ScheduleBook
from intradp_ros.planning.lowering import lower
from intradp_ros.planning.partition import Partition, Stage
from intradp_ros.planning.schedule import ROBOT, Schedule

Stages = tuple[Stage, ...]


@dataclass(frozen=True)
class Compiled:
    """A schedule with one side's program for it."""

    schedule: Schedule
    program: Program


class ProgramShelf:
    """
    Compiles partitions for one side and keeps what it compiled.

    Neighbouring bandwidths often share a partition, so the key is the
    partition and not the schedule id; and a program does not depend on
    encodings, so partitions with the same stages share it.
    """

    def __init__(self, model: SharedModel, side: str) -> None:
        self.model, self.side = model, side
        self._compiled: dict[Partition, Compiled] = {}
        self._programs: dict[Stages, Program] = {}
        self._lock = threading.Lock()

    def get(self, partition: Partition) -> Compiled:
        """
        Return the compiled schedule of a partition.

        Raises
        ------
        ValueError
            If the partition does not fit the graph.

        """
        with self._lock:
            if partition not in self._compiled:
                self._compiled[partition] = self._compile(partition)
            return self._compiled[partition]

    def prepare(self, book: ScheduleBook) -> None:
        """Compile every schedule of a book, and forget those of other books."""
        kept = {entry.partition: self.get(entry.partition) for entry in book.entries}
        with self._lock:
            self._compiled = kept
            self._programs = {p.stages: compiled.program for p, compiled in kept.items()}

    def _compile(self, partition: Partition) -> Compiled:
        schedule = lower(self.model.split, partition)
        if partition.stages not in self._programs:
            self._programs[partition.stages] = compile_program(
                self.model.split, schedule, self.side, self.model.parameters,
                delivers=self.side == ROBOT)
        return Compiled(schedule, self._programs[partition.stages])
