# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""The arrays of one frame's tasks as those of many frames, without a task object for each."""
from __future__ import annotations

import numpy as np

from intradp_ros.schedule.task_arrays import Floats, Holdings, Ints, TaskArrays


def repeated(one: TaskArrays, held: Holdings, starts: Floats, frames: int, period: float,
             ) -> tuple[TaskArrays, Holdings]:
    """
    Return the tasks of frames that are all there at time 0, and the memory these hold.

    Devices take them in the order of `starts` (seconds, by task) if each frame began one
    `period` after the one before; a frame's transfers have its number as priority.
    """
    count = len(one.device)
    frame = np.repeat(np.arange(frames), count)
    index = np.tile(np.arange(count), frames)
    order = np.lexsort((index, frame, frame * period + starts[index]))
    places = np.empty(len(order), np.int64)
    places[order] = np.arange(len(order))
    place = places.reshape(frames, count)
    task, frame = index[order], frame[order]

    sources, targets = _edges(one.after_at, one.after, place)
    edges = np.lexsort((targets, sources))
    device = one.device[task]
    working = np.flatnonzero(device >= 0)
    turn = working[np.argsort(device[working], kind='stable')]
    devices = len(one.turn_at) - 1
    arrays = one._replace(
        device=device, seconds=one.seconds[task], nbytes=one.nbytes[task],
        priority=np.where(device >= 0, 0.0, frame.astype(np.float64)), lead=one.lead[task],
        lag=one.lag[task], release=np.zeros(len(task)), route=one.route[task],
        source=one.source[task], target=one.target[task], waits=one.waits[task],
        after_at=_starts(np.bincount(sources, minlength=len(task))), after=targets[edges],
        turn_at=_starts(np.bincount(device[working], minlength=devices)), turn=turn)

    holders = place[:, held.task].reshape(-1)
    rows = np.argsort(holders)
    number, until = _edges(held.until_at, held.until, place, rows=len(held.task))
    row = np.empty(len(rows), np.int64)
    row[rows] = np.arange(len(rows))
    until_at = _starts(np.tile(np.diff(held.until_at), frames)[rows])
    return arrays, Holdings(
        holders[rows], np.tile(held.device, frames)[rows], np.tile(held.nbytes, frames)[rows],
        until_at, until[np.argsort(row[number], kind='stable')])


def _edges(starts: Ints, ends: Ints, place: Ints, rows: int | None = None) -> tuple[Ints, Ints]:
    """Return pairs in all frames: of tasks in their place, or of so many `rows` as they stand."""
    owner = np.repeat(np.arange(len(starts) - 1), np.diff(starts))
    if rows is None:
        return place[:, owner].reshape(-1), place[:, ends].reshape(-1)
    frames = np.arange(len(place))[:, None]
    return (frames * rows + owner).reshape(-1), place[:, ends].reshape(-1)


def _starts(counts: Ints) -> Ints:
    return np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
