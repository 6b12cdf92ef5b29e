# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""Sharpening a partition with the exact simulator: shares and bands, one step at a time."""
from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from functools import partial
from typing import Any

from intradp_ros.systems.sharing.judge.judge import Judged
from intradp_ros.systems.sharing.partition.partition import Partition
from intradp_ros.systems.sharing.search.solving import Trial

BANDS = (1, 2, 4, 8, 16)
Move = Callable[[Partition], Partition]
STEPS = (0.16, 0.08, 0.04, 0.02, 0.01)
GAIN = 0.002


def refine(trial: Trial, start: Partition, *, bands: bool = True) -> Judged:
    """
    Descend from a partition: bands first, then shares by smaller and smaller steps.

    A move is taken when it wins at least the fraction `GAIN`, so that a
    schedule is not made finer for nothing.  Never worse than `start`.  Without `bands` only
    shares and stages change.
    """
    best = trial(start)
    best = _descend(trial, best, _merging_moves)
    if bands:
        best = _descend(trial, best, _band_moves)
    for step in STEPS:
        best = _descend(trial, best, partial(_share_moves, step))
    return _descend(trial, best, _band_moves) if bands else best


def _descend(trial: Trial, best: Judged,
             moves: Callable[[Partition], Iterable[Move]]) -> Judged:
    """Take every move that wins enough, until none does (or for a few rounds)."""
    for _ in range(3):
        before = best
        for move in list(moves(best.partition)):
            partition = move(best.partition)
            if partition == best.partition:
                continue
            if trial.over:
                return best
            found = trial(partition)
            if found.price < best.price * (1 - GAIN):
                best = found
        if best is before:
            break
    return best


def _share_moves(step: float, partition: Partition) -> Iterator[Move]:
    for index in range(len(partition.stages)):
        yield partial(_shifted, index, -step)
        yield partial(_shifted, index, step)


def _band_moves(partition: Partition) -> Iterator[Move]:
    for index in range(len(partition.stages)):
        for bands in BANDS:
            yield partial(_changed, index, server_bands=bands)
            yield partial(_changed, index, robot_bands=bands)


def _merging_moves(partition: Partition) -> Iterator[Move]:
    """From the back, so that the indices in front stay."""
    return (partial(_merged, index) for index in reversed(range(len(partition.stages) - 1)))


def _changed(index: int, partition: Partition, **fields: Any) -> Partition:
    stages = partition.stages
    changed = stages[:index] + (replace(stages[index], **fields),) + stages[index + 1:]
    return replace(partition, stages=changed)


def _shifted(index: int, step: float, partition: Partition) -> Partition:
    share = round(min(1.0, max(0.0, partition.stages[index].share + step)), 4)
    return _changed(index, partition, share=share)


def _merged(index: int, partition: Partition) -> Partition:
    """Without the exchange at the end of one stage."""
    return replace(partition,
                   stages=partition.stages[:index] + partition.stages[index + 1:])
