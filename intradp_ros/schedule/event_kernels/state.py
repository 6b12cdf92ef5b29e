# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""
What is in flight while a task graph is played.

Plain Python on arrays and lists that numba compiles as it stands.
"""
from __future__ import annotations

from heapq import heappush
from typing import NamedTuple

import numpy as np

from intradp_ros.schedule.task_arrays import Floats, Ints, TaskArrays

#: What can happen at a time: to a task (the first three), a medium, a slot.
END, JOIN, ENTER, CHUNK, WAKE, FORWARD = range(6)

Event = tuple[float, int, int]
Queued = tuple[float, float, int]


class Report(NamedTuple):
    """By task: seconds of its start and finish.  By device: seconds computing and on the air."""

    start: Floats
    finish: Floats
    busy: Floats
    sending: Floats
    receiving: Floats


class Progress(NamedTuple):
    """
    Tasks and devices.

    `events` is a heap of times, kinds and indices.  By task: how many it
    still `waits` for, and whether it is `ready`.  By device: the `place` in
    its turns, whether it is `taken`, how many transfers it sends and
    receives, and since when.
    """

    events: list[Event]
    waits: Ints
    ready: Ints
    place: Ints
    taken: Ints
    sends: Ints
    sends_since: Floats
    receives: Ints
    receives_since: Floats


class Flows(NamedTuple):
    """
    Transfers that share media fairly; all on one route get the same.

    By route: how many there are (`flowing`), the `rate` of each, the bytes that
    each has got since the route was empty (`served`), and a heap of the bytes
    at which transfers are done (`goals`).  `active` lists the routes in use;
    `seat` says where a route stands in it.  `left` and `load` are room for
    the media.  `marks` holds the number of active routes, and whether the
    rates are old.
    """

    flowing: Ints
    rate: Floats
    served: Floats
    goals: list[list[tuple[float, int]]]
    active: Ints
    seat: Ints
    left: Floats
    load: Floats
    marks: Ints


class Lines(NamedTuple):
    """
    Transfers that wait in line for media, a chunk at a time.

    A slot is a hop of a transfer: those of task k start at ``slot_at[k]``.
    By slot: the `task`, how many chunks have `arrived` and were `sent` on.
    By task: the size and number of chunks, and when it `joined`.  By medium:
    the slot that it serves (-1: none), and a heap of those that wait.
    """

    slot_at: Ints
    task: Ints
    arrived: Ints
    sent: Ints
    size: Floats
    chunks: Ints
    joined: Floats
    serves: Ints
    queues: list[list[Queued]]


def new_report(t: TaskArrays) -> Report:
    """Return a report of nothing yet."""
    tasks, devices = len(t.device), len(t.turn_at) - 1
    return Report(np.zeros(tasks), np.zeros(tasks), np.zeros(devices), np.zeros(devices),
                  np.zeros(devices))


def new_progress(t: TaskArrays) -> Progress:
    """Return that nothing has begun."""
    tasks, devices = len(t.device), len(t.turn_at) - 1
    events = [(0.0, 0, 0) for _ in range(0)]
    return Progress(events, t.waits.copy(), np.zeros(tasks, np.int64), t.turn_at[:devices].copy(),
                    np.zeros(devices, np.int64), np.zeros(devices, np.int64), np.zeros(devices),
                    np.zeros(devices, np.int64), np.zeros(devices))


def new_flows(t: TaskArrays) -> Flows:
    """Return that no transfer flows."""
    routes, media = len(t.hop_at) - 1, len(t.rate)
    goals = [[(0.0, 0) for _ in range(0)] for _ in range(routes)]
    return Flows(np.zeros(routes, np.int64), np.zeros(routes), np.zeros(routes), goals,
                 np.zeros(routes, np.int64), np.zeros(routes, np.int64), np.zeros(media),
                 np.zeros(media), np.zeros(2, np.int64))


def new_lines(t: TaskArrays, chunk: float) -> Lines:
    """Return that no transfer waits in line; `chunk` bytes are the most that go in one piece."""
    tasks, media = len(t.device), len(t.rate)
    slot_at, size = np.zeros(tasks + 1, np.int64), np.zeros(tasks)
    chunks = np.zeros(tasks, np.int64)
    for k in range(tasks):
        slot_at[k + 1] = slot_at[k]
        if t.route[k] >= 0 and t.nbytes[k] > 0:
            slot_at[k + 1] += t.hop_at[t.route[k] + 1] - t.hop_at[t.route[k]]
            size[k] = min(chunk, t.nbytes[k])
            chunks[k] = np.int64(np.ceil(t.nbytes[k] / size[k]))
    task = np.zeros(slot_at[tasks], np.int64)
    for k in range(tasks):
        task[slot_at[k]:slot_at[k + 1]] = k
    queues = [[(0.0, 0.0, 0) for _ in range(0)] for _ in range(media)]
    slots = len(task)
    return Lines(slot_at, task, np.zeros(slots, np.int64), np.zeros(slots, np.int64), size, chunks,
                 np.zeros(tasks), np.full(media, -1, np.int64), queues)


def begins(end: int, active: Ints, since: Floats, now: float) -> None:
    """Note that a device (none: negative) begins to send or receive one more transfer."""
    if end >= 0:
        if active[end] == 0:
            since[end] = now
        active[end] += 1


def ends(end: int, active: Ints, since: Floats, seconds: Floats, now: float) -> None:
    """Note that a transfer, or a chunk of it, has left or reached a device (none: negative)."""
    if end >= 0:
        active[end] -= 1
        if active[end] == 0:
            seconds[end] += now - since[end]


def through(t: TaskArrays, s: Progress, task: int, then: float) -> None:
    """Note when the last byte of a transfer has passed its last medium."""
    heappush(s.events, (then + t.lag[task], END, task))
