# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""
Tasks on the resources of a topology: what the event simulator plays.

A task computes on a device, moves bytes from one device to another, or loads
them from a device's disk.  It starts when the tasks that it waits for have
ended and its resource takes it: a device runs its tasks one at a time in the
order of the graph; media and disks carry many at once, or chunks in order of
priority.
"""
from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
import math


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
    first; equals in the order in which they became ready.  `lead` seconds
    pass before its first byte, as of encoding, and `lag` after its last;
    they keep no device and no medium busy.  `holds` is memory of the target.
    """

    source: str
    target: str
    nbytes: float
    after: tuple[int, ...] = ()
    name: str = ''
    priority: float = 0.0
    lead: float = 0.0
    lag: float = 0.0
    holds: float = 0.0
    until: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class LoadTask:
    """
    Bytes from a device's disk into its memory.

    They are held until the last task in `until` has ended; to the end if
    there is none.
    """

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
    arrive one after another); 0 for tasks that are not in it.  `resident`
    bytes are in a device's memory all along, such as weights.

    :raises ValueError: if a task waits for itself or a later one, memory is held until a task that
        is not there, or a number is not finite and 0 or more.
    """

    tasks: tuple[Task, ...]
    release: Mapping[int, float] = field(default_factory=dict)
    resident: Mapping[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """See that all can be played."""
        count = len(self.tasks)
        for index, task in enumerate(self.tasks):
            if task.after and not 0 <= min(task.after) <= max(task.after) < index:
                raise ValueError(f'task {index} ({task.name}) waits for {task.after}: a task '
                                 'waits for earlier ones only')
            if task.until and not 0 <= min(task.until) <= max(task.until) < count:
                raise ValueError(f'task {index} ({task.name}) holds memory until {task.until}: '
                                 f'there are tasks 0 to {count - 1}')
            if not all(0 <= number < math.inf for number in _numbers(task)):
                raise ValueError(f'task {index} ({task.name}) needs finite numbers of 0 or more')
        for index, seconds in self.release.items():
            if not 0 <= index < count or not 0 <= seconds < math.inf:
                raise ValueError(f'task {index} is released at {seconds} s: name one of {count} '
                                 'tasks, and a finite time of 0 or more')


def _numbers(task: Task) -> tuple[float, ...]:
    if isinstance(task, ComputeTask):
        return task.seconds, task.holds
    if isinstance(task, LoadTask):
        return (task.nbytes,)
    return task.nbytes, task.lead, task.lag, task.holds
