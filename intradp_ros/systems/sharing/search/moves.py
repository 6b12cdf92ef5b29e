# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""Small changes of a partition, drawn at random: the neighbourhood in which the search moves."""
from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
import math
from random import Random

import numpy as np
import numpy.typing as npt

from intradp_ros.schedule.cost import CostModel
from intradp_ros.schedule.schedule import SIDES
from intradp_ros.split.local_operator import SplitGraph
from intradp_ros.systems.sharing.partition.crossing import crossing_bytes
from intradp_ros.systems.sharing.partition.partition import (
    MAX_BANDS,
    MAX_GROWTH,
    Pace,
    Partition,
    RowStage,
)

MOST_STAGES = 24
SMALL = 20
Stages = tuple[RowStage, ...]
Move = Callable[[Random, Stages, Sequence[int]], Stages]


def places(cost: CostModel, most: int = 64) -> tuple[int, ...]:
    """
    Return where stages may end, ascending, the end of the graph last.

    An operator is a good last one of a stage if fewer bytes are alive behind
    it than before it and not more than behind the next one, whether or not
    outputs count on to the end; if its own outputs are a neck, as in front of
    an upsampling; or if the next one is not split while it is itself.  Of
    more than `most` such places those are kept behind which the fewest bytes
    are alive, in each of so many parts of equal work.  In a small graph every
    operator is good.
    """
    split = cost.split
    count = len(split.operators)
    if count <= SMALL:
        return tuple(range(1, count + 1))
    alive, kept = crossing_bytes(split), crossing_bytes(split, outputs=True)
    good = [i + 1 for i in range(count - 1)
            if _meets(split, i + 1) or _dips(alive, i) or _dips(kept, i) or _neck(split, i)]
    if len(good) > most:
        work = np.cumsum(sum(np.array([t[-1] for t in cost.seconds[side]]) for side in SIDES))
        part = (work * most / work[-1]).astype(int)
        best: dict[int, int] = {}
        for stop in sorted(good, key=lambda stop: (not _meets(split, stop), alive[stop - 1])):
            best.setdefault(int(part[stop - 1]), stop)
        good = sorted(best.values())
    return (*good, count)


def _dips(alive: npt.NDArray[np.int64], i: int) -> bool:
    """Return whether fewer bytes are alive than before, and not more than next."""
    return bool(alive[i] <= alive[i + 1] and (i == 0 or alive[i] < alive[i - 1]))


def _neck(split: SplitGraph, index: int) -> bool:
    """Return whether an operator makes fewer bytes than it reads, and than is made of them."""
    graph = split.graph
    made = [v for v in graph.operators[index].outputs if v is not None]
    later = [v for value in made for reader in graph.consumers[value]
             for v in graph.operators[reader].outputs if v is not None]
    size = _bytes(split, made)
    return size < _bytes(split, graph.operators[index].inputs) and size < _bytes(split, later)


def _bytes(split: SplitGraph, values: Iterable[int]) -> int:
    return sum(split.graph.values[v].nbytes for v in set(values))


def _meets(split: SplitGraph, index: int) -> bool:
    """Return whether an operator is not split but reads what is."""
    op = split.operators[index]
    return op.rows == 1 and any(split.rows[v] > 1 for v in op.operator.inputs)


def propose(rng: Random, stages: Stages, stops: Sequence[int]) -> Stages:
    """Return stages with one change, or as they were if the change drawn is impossible."""
    move = rng.choices(_MOVES, _WEIGHTS)[0]
    return move(rng, stages, stops)


def _with(stages: Stages, index: int, stage: RowStage) -> Stages:
    return stages[:index] + (stage,) + stages[index + 1:]


def _bounded(share: float) -> float:
    return round(min(1.0, max(0.0, share)), 4)


def _step(rng: Random) -> float:
    """Draw a change of a share, of any scale from 0.003 to 0.4."""
    size = 0.4 * math.pow(2.0, -rng.uniform(0, 7))
    return size if rng.random() < 0.5 else -size


def _shift(rng: Random, stages: Stages, stops: Sequence[int]) -> Stages:
    """Move the border of a stage."""
    i = rng.randrange(len(stages))
    return _with(stages, i, replace(stages[i], share=_bounded(stages[i].share + _step(rng))))


def _shift_run(rng: Random, stages: Stages, stops: Sequence[int]) -> Stages:
    """Move the borders of neighbouring stages by the same, or more and more."""
    a, b = sorted((rng.randrange(len(stages)), rng.randrange(len(stages))))
    step, ramp = _step(rng), rng.random() < 0.3
    return tuple(
        replace(s, share=_bounded(s.share + step * ((i - a + 1) / (b - a + 1) if ramp else 1)))
        if a <= i <= b else s for i, s in enumerate(stages))


def _settle(rng: Random, stages: Stages, stops: Sequence[int]) -> Stages:
    """Give a stage to one side, or the border of its neighbour."""
    i = rng.randrange(len(stages))
    neighbours = [stages[k].share for k in (i - 1, i + 1) if 0 <= k < len(stages)]
    return _with(stages, i, replace(stages[i], share=rng.choice((0.0, 1.0, *neighbours))))


def _end_elsewhere(rng: Random, stages: Stages, stops: Sequence[int]) -> Stages:
    """Move the end of a stage to another place."""
    if len(stages) < 2:
        return stages
    i = rng.randrange(len(stages) - 1)
    low, high = stages[i - 1].stop if i else 0, stages[i + 1].stop
    near = sorted((stop for stop in stops if low < stop < high),
                  key=lambda stop: abs(stop - stages[i].stop))
    if not near:
        return stages
    stop = rng.choice(near[:rng.choice((3, 6, len(near)))])
    return _with(stages, i, replace(stages[i], stop=stop))


def _divide(rng: Random, stages: Stages, stops: Sequence[int]) -> Stages:
    """Exchange rows inside a stage too, and perhaps move the border there."""
    i = rng.randrange(len(stages))
    inside = [stop for stop in stops if (stages[i - 1].stop if i else 0) < stop < stages[i].stop]
    if not inside or len(stages) >= MOST_STAGES:
        return stages
    share = stages[i].share
    first, second = rng.choice((
        (share, share), (_bounded(share + _step(rng)), share),
        (share, _bounded(share + _step(rng))), (share, 0.0), (share, 1.0), (0.0, share),
        (1.0, share)))
    front = replace(stages[i], stop=rng.choice(inside), share=first)
    return stages[:i] + (front, replace(stages[i], share=second)) + stages[i + 1:]


def _ease(rng: Random, stages: Stages, stops: Sequence[int]) -> Stages:
    """Let a border that jumps do so in two steps, and what crosses first be made first."""
    if len(stages) < 2 or len(stages) >= MOST_STAGES:
        return stages
    i = rng.randrange(len(stages) - 1)
    before, after = stages[i], stages[i + 1]
    robot_gives = before.share > after.share
    low, high = stages[i - 1].stop if i else 0, after.stop
    near = sorted((stop for stop in stops if low < stop < high and stop != before.stop),
                  key=lambda stop: abs(stop - before.stop))[:6]
    if not near or before.share == after.share:
        return stages
    stop, part = rng.choice(near), rng.random()
    share = _bounded(before.share + part * (after.share - before.share))
    first, middle = sorted((stop, before.stop))
    bands, growth = rng.choice((2, 3, 4, 6)), rng.choice((0.5, 1.0, 2.0))
    front = _repaced(replace(before, stop=first), SIDES[0] if robot_gives else SIDES[1], bands,
                     Pace(growth, upward=robot_gives))
    return stages[:i] + (front, RowStage(middle, share), after) + stages[i + 2:]


def _merge(rng: Random, stages: Stages, stops: Sequence[int]) -> Stages:
    """Do without the exchange between two stages."""
    if len(stages) < 2:
        return stages
    i = rng.randrange(len(stages) - 1)
    kept = replace(rng.choice(stages[i:i + 2]), stop=stages[i + 1].stop)
    return stages[:i] + (kept,) + stages[i + 2:]


def _bands(rng: Random, stages: Stages, stops: Sequence[int]) -> Stages:
    """Take more or fewer bands on one side."""
    i, side = rng.randrange(len(stages)), rng.choice(SIDES)
    bands, pace = _part(stages[i], side)
    bands = rng.choice((1, 2 * bands, bands // 2, bands + 1, bands - 1, 3 * bands))
    return _with(stages, i, _repaced(stages[i], side, min(MAX_BANDS, max(1, bands)), pace))


def _pace(rng: Random, stages: Stages, stops: Sequence[int]) -> Stages:
    """Let the bands of one side grow, turn round, or follow what comes in."""
    i, side = rng.randrange(len(stages)), rng.choice(SIDES)
    bands, pace = _part(stages[i], side)
    if bands == 1:
        bands = rng.choice((2, 4, 8))
    kind = rng.randrange(4)
    if kind < 2:
        factor = rng.choice((0.5, 0.8, 0.9, 1.1, 1.25, 2.0))
        growth = round(min(MAX_GROWTH, max(1 / MAX_GROWTH, pace.growth * factor)), 3)
        pace = replace(pace, growth=growth)
    elif kind == 2:
        pace = replace(pace, upward=not pace.upward)
    else:
        pace = replace(pace, by_input=not pace.by_input)
    return _with(stages, i, _repaced(stages[i], side, bands, pace))


def _part(stage: RowStage, side: str) -> tuple[int, Pace]:
    if side == SIDES[0]:
        return stage.robot_bands, stage.robot_pace
    return stage.server_bands, stage.server_pace


def _repaced(stage: RowStage, side: str, bands: int, pace: Pace) -> RowStage:
    pace = pace if bands > 1 else Pace()
    if side == SIDES[0]:
        return replace(stage, robot_bands=bands, robot_pace=pace)
    return replace(stage, server_bands=bands, server_pace=pace)


_MOVES: tuple[Move, ...] = (
    _shift, _shift_run, _settle, _end_elsewhere, _divide, _merge, _bands, _pace, _ease)
_WEIGHTS = (5, 4, 1, 3, 3, 1.5, 4, 3, 2)


def pieces(partition: Partition) -> int:
    """Return how finely a partition is cut: its stages' bands on both sides."""
    return sum(s.robot_bands + s.server_bands for s in partition.stages)
