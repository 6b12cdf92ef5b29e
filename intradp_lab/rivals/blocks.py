# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""Blocks of operators placed as one, and what many placements of them take at once."""
from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from intradp_ros.schedule.cost import CostModel, LinkModel
from intradp_ros.schedule.schedule import ROBOT, SERVER, SIDES
from intradp_ros.split.local_operator import SplitGraph
from intradp_ros.systems.sharing.baselines.minimum_cut import crossing_bytes
from intradp_ros.systems.sharing.judge.rows_needed import needed_rows

Bools = npt.NDArray[np.bool_]
Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Block:
    """Operators in a row: what they read from outside, what others read, seconds on each side."""

    reads: tuple[int, ...]
    makes: tuple[int, ...]
    seconds: dict[str, float]


@dataclass(frozen=True)
class Played:
    """What placements take: seconds, seconds of the robot's compute, bytes; one entry for each."""

    latency: Floats
    robot_busy: Floats
    bytes_up: Floats
    bytes_down: Floats


@dataclass(frozen=True)
class Blocks:
    """
    The blocks of a graph in topological order.

    `member` is the block of every operator; `readers` the blocks that read
    each value from outside its own; `delivered` the values that the robot
    must have in the end.
    """

    blocks: tuple[Block, ...]
    member: npt.NDArray[np.int64]
    readers: dict[int, tuple[int, ...]]
    nbytes: dict[int, float]
    inputs: tuple[int, ...]
    delivered: frozenset[int]

    @classmethod
    def of(cls, cost: CostModel) -> Blocks:
        """
        Merge operators that follow one another alone, but not where few bytes cross.

        A place between two operators of a chain is kept where fewer bytes
        cross than before the first of them.  Rows that nobody needs are
        neither computed nor sent.
        """
        split = cost.split
        member, height = _members(split), _needed_heights(split)
        graph = split.graph
        readers = {v.id: tuple(sorted({int(member[i]) for i in graph.consumers[v.id]}
                                      - {_maker(split, member, v.id)})) for v in graph.values}
        blocks = []
        delivered = frozenset(graph.output_values)
        for number in range(int(member.max()) + 1):
            inside = np.flatnonzero(member == number).tolist()
            made = {v for i in inside for v in split.operators[i].operator.outputs
                    if v is not None}
            read = {v for i in inside for v in split.operators[i].operator.inputs} - made
            blocks.append(Block(
                tuple(sorted(read)),
                tuple(v for v in sorted(made) if readers[v] or v in delivered),
                {side: sum(float(cost.seconds[side][i][_rows(split, height, i)]) for i in inside)
                 for side in SIDES}))
        nbytes = {v: crossing_bytes(cost, v, rows) for v, rows in enumerate(height)}
        return cls(tuple(blocks), member, readers, nbytes, tuple(graph.inputs), delivered)

    def play(self, on_server: Bools, link: LinkModel) -> Played:
        """Play many placements at once; `on_server` has shape (blocks, placements)."""
        return _Placements(self, on_server, link).play()


def _needed_heights(split: SplitGraph) -> list[int]:
    """Return how many rows of each value lie between the first and the last that is needed."""
    heights = []
    for rows in needed_rows(split):
        found = np.flatnonzero(rows)
        heights.append(int(found[-1] - found[0]) + 1 if len(found) else 0)
    return heights


def _rows(split: SplitGraph, height: list[int], index: int) -> int:
    return max((height[v] for v in split.operators[index].operator.outputs if v is not None),
               default=0)


def _maker(split: SplitGraph, member: npt.NDArray[np.int64], value: int) -> int:
    producer = split.graph.producer.get(value)
    return -1 if producer is None else int(member[producer])


def _members(split: SplitGraph) -> npt.NDArray[np.int64]:
    member: list[int] = []
    for op in split.operators:
        before = _only_before(split, op.operator.id)
        joins = before == op.operator.id - 1 and not _narrows(split, before)
        member.append(member[-1] if joins else (member[-1] + 1 if member else 0))
    return np.array(member, dtype=np.int64)


def _only_before(split: SplitGraph, index: int) -> int | None:
    """Return the operator that this one alone follows, if there is just one such."""
    graph = split.graph
    makers = {graph.producer.get(v) for v in split.operators[index].operator.inputs}
    if len(makers) != 1:
        return None
    maker = makers.pop()
    if maker is None:
        return None
    readers = {i for v in split.operators[maker].operator.outputs if v is not None
               for i in graph.consumers[v]}
    return maker if readers == {index} else None


def _narrows(split: SplitGraph, index: int) -> bool:
    """Return whether an operator puts out fewer bytes than it reads."""
    op = split.operators[index].operator
    read = sum(split.nbytes(v, split.rows[v]) for v in set(op.inputs))
    made = sum(split.nbytes(v, split.rows[v]) for v in op.outputs if v is not None)
    return made < read


class _Placements:
    """Model time of many placements, block by block."""

    def __init__(self, blocks: Blocks, on_server: Bools, link: LinkModel) -> None:
        self.blocks, self.on_server, self.link = blocks, on_server, link
        size = on_server.shape[1]
        self.ready = {side: np.zeros(size) for side in SIDES}
        self.lane = {ROBOT: np.zeros(size), SERVER: np.zeros(size)}
        if link.shared:
            self.lane[SERVER] = self.lane[ROBOT]
        self.there: dict[tuple[str, int], Floats] = {}
        self.robot_busy = np.zeros(size)
        self.sent = {side: np.zeros(size) for side in SIDES}

    def play(self) -> Played:
        nobody = np.zeros(self.on_server.shape[1], dtype=bool)
        for value in self.blocks.inputs:
            self._made(value, nobody, np.zeros(len(nobody)))
        for number, block in enumerate(self.blocks.blocks):
            self._run(block, self.on_server[number])
        end = np.max([self.ready[ROBOT], *(self.there[ROBOT, v] for v in self.blocks.delivered
                                           if (ROBOT, v) in self.there)], axis=0)
        return Played(end, self.robot_busy, self.sent[ROBOT], self.sent[SERVER])

    def _run(self, block: Block, server: Bools) -> None:
        start = np.where(server, self.ready[SERVER], self.ready[ROBOT])
        for value in block.reads:
            arrival = np.where(server, self.there[SERVER, value], self.there[ROBOT, value])
            start = np.maximum(start, arrival)
        stop = start + np.where(server, block.seconds[SERVER], block.seconds[ROBOT])
        self.ready[SERVER] = np.where(server, stop, self.ready[SERVER])
        self.ready[ROBOT] = np.where(server, self.ready[ROBOT], stop)
        self.robot_busy += np.where(server, 0.0, block.seconds[ROBOT])
        for value in block.makes:
            self._made(value, server, stop)

    def _made(self, value: int, server: Bools, when: Floats) -> None:
        """Let a value be there, and cross the link where it is read on the other side."""
        readers = self.on_server[list(self.blocks.readers[value])]
        some = self.blocks.nbytes[value] > 0
        up = ~server & readers.any(0) & some
        down = server & ((~readers).any(0) | (value in self.blocks.delivered)) & some
        at_server = self._cross(ROBOT, value, up, when, self.link.up)
        at_robot = self._cross(SERVER, value, down, when, self.link.down)
        self.there[SERVER, value] = np.where(server, when, at_server)
        self.there[ROBOT, value] = np.where(server, at_robot, when)

    def _cross(self, source: str, value: int, crosses: Bools, when: Floats, rate: float,
               ) -> Floats:
        nbytes, lane = self.blocks.nbytes[value], self.lane[source]
        stop = np.maximum(lane, when) + self.link.overhead + nbytes / rate
        np.copyto(lane, stop, where=crosses)
        self.sent[source] += np.where(crosses, nbytes, 0)
        return stop + self.link.delay
