# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""Sharpening a partition with the exact simulator: shares and bands, one step at a time."""
from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import partial

from intradp_ros.planning.cost import CostModel, LinkModel
from intradp_ros.planning.lowering import lower
from intradp_ros.planning.partition import Partition, Stage
from intradp_ros.planning.simulator import simulate

BANDS = (1, 2, 4, 8, 16)
Moves = Callable[[Partition], Iterator[Partition]]
STEPS = (0.16, 0.08, 0.04, 0.02, 0.01)


@dataclass(frozen=True, slots=True)
class Judged:
    """A partition with the latency (seconds) that the simulator gives it."""

    latency: float
    partition: Partition


def judge(cost: CostModel, link: LinkModel, partition: Partition) -> Judged:
    """Lower and simulate a partition."""
    return Judged(simulate(lower(cost.split, partition), cost, link).latency, partition)


def refine(cost: CostModel, link: LinkModel, start: Partition, *, gain: float = 0.002) -> Judged:
    """
    Descend from a partition: bands first, then shares by smaller and smaller steps.

    A move is taken when it wins at least the fraction `gain`, so that a
    schedule is not made finer for nothing.  Never worse than `start`.
    """
    best = judge(cost, link, start)
    best = _descend(cost, link, best, _band_moves, gain)
    for step in STEPS:
        best = _descend(cost, link, best, partial(_share_moves, step), gain)
    return _descend(cost, link, best, _band_moves, gain)


def best_of(judged: Iterable[Judged]) -> Judged:
    """Return the fastest; the first among equals."""
    return min(judged, key=lambda j: j.latency)


def _descend(cost: CostModel, link: LinkModel, best: Judged, moves: Moves,
             gain: float) -> Judged:
    for _ in range(8):
        found = min((judge(cost, link, p) for p in moves(best.partition)),
                    key=lambda j: j.latency, default=best)
        if found.latency >= best.latency * (1 - gain):
            break
        best = found
    return best


def _replaced(partition: Partition, index: int, stage: Stage) -> Partition:
    stages = partition.stages
    return Partition(stages[:index] + (stage,) + stages[index + 1:])


def _share_moves(step: float, partition: Partition) -> Iterator[Partition]:
    for index, stage in enumerate(partition.stages):
        for share in (stage.share - step, stage.share + step):
            share = round(min(1.0, max(0.0, share)), 4)
            if share != stage.share:
                yield _replaced(partition, index, replace(stage, share=share))


def _band_moves(partition: Partition) -> Iterator[Partition]:
    for index, stage in enumerate(partition.stages):
        for bands in BANDS:
            if bands != stage.server_bands:
                yield _replaced(partition, index, replace(stage, server_bands=bands))
            if bands != stage.robot_bands:
                yield _replaced(partition, index, replace(stage, robot_bands=bands))
