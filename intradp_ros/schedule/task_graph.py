# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""
Tasks on the resources of a topology: what the event simulator plays.

A task computes on a device, moves bytes from one device to another, or loads
them from a device's disk.  It starts when the tasks that it waits for have
ended and its resource takes it: a device runs its tasks one at a time in the
order of the graph; media and disks carry many at once, or in order of
priority.
"""
from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class ComputeTask:
    """
    Seconds of work on a device.

    `holds` bytes of memory are taken from its start on; they are given back
    when the last task in `until` has ended (its own end if there is none).
    """

    device: str
    seconds: float
    after: tuple[int, ...] = ()
    name: str = ''
    holds: float = 0.0
    until: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class TransferTask:
    """
    Bytes from one device to another over the media of their path.

    Where media serve by priority the transfer with the smallest number goes
    first; equals in the order of the graph.
    """

    source: str
    target: str
    nbytes: float
    after: tuple[int, ...] = ()
    name: str = ''
    priority: float = 0.0


@dataclass(frozen=True, slots=True)
class LoadTask:
    """Bytes from a device's disk into its memory."""

    device: str
    nbytes: float
    after: tuple[int, ...] = ()
    name: str = ''
    priority: float = 0.0
    until: tuple[int, ...] = ()


Task = ComputeTask | TransferTask | LoadTask


@dataclass(frozen=True)
class TaskGraph:
    """
    Tasks by index; a task waits only for earlier ones.

    `release` gives seconds before which a task must not start (frames that
    arrive one after another); 0 for tasks that are not in it.

    Raises
    ------
    ValueError
        If a task waits for itself or a later one.

    """

    tasks: tuple[Task, ...]
    release: dict[int, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """See that no task waits for a later one."""
        for index, task in enumerate(self.tasks):
            if any(not 0 <= other < index for other in task.after):
                raise ValueError(f'task {index} ({task.name}) waits for {task.after}: a task '
                                 'waits for earlier ones only')
