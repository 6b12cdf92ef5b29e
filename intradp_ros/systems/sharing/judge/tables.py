# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""Split graphs, partitions and costs as the records that the kernels take."""
from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache, wraps
from itertools import accumulate
from weakref import WeakKeyDictionary

import numpy as np
import numpy.typing as npt

from intradp_ros.link.chunk_size import chunk_bytes_at
from intradp_ros.profiling.profile import JoinCost, TransportCost
from intradp_ros.schedule.cost import CostModel, LinkModel, WireCost
from intradp_ros.schedule.schedule import SIDES
from intradp_ros.split.local_operator import SplitGraph
from intradp_ros.split.regions.region import RowMap
from intradp_ros.systems.sharing.judge.records import (
    Array,
    as_plain,
    CLOCK,
    Clock,
    CODING,
    JOIN,
    Layout,
    LinkCost,
    OPERATOR,
    PART,
    PlainScratch,
    READ,
    STAGE,
    StepCosts,
    table,
    Tables,
    TRANSFER_COST,
    VALUE,
    WAY,
    whole_numbers,
    WINDOW,
    WORK,
    Work,
)
from intradp_ros.systems.sharing.partition.partition import Encodings, Partition
from intradp_ros.wire.codecs.names import NONE
from intradp_ros.wire.codecs.registry import piece_bytes

_PLAIN, _FREE, _TOGETHER = WireCost(), TransportCost(), JoinCost()


def _once_for_each(make: Callable[[SplitGraph], Tables]) -> Callable[[SplitGraph], Tables]:
    """Let a function make the tables of a graph once, and keep them as long as the graph."""
    known: WeakKeyDictionary[SplitGraph, Tables] = WeakKeyDictionary()

    @wraps(make)
    def found(split: SplitGraph) -> Tables:
        if split not in known:
            known[split] = make(split)
        return known[split]
    return found


@_once_for_each
def tables_of(split: SplitGraph) -> Tables:
    """Return all that planning reads of a split graph."""
    maps = {_content(m): m for op in split.operators for m in op.maps}
    starts = dict(zip(maps, accumulate((len(m.first) for m in maps.values()), initial=0)))
    ascending = {key: _ascends(m.first) and _ascends(m.last) for key, m in maps.items()}
    reads = [(v, _content(m))
             for op in split.operators for v, m in zip(op.operator.inputs, op.maps)]
    made = [[v for v in op.operator.outputs if v is not None] for op in split.operators]
    values = range(len(split.rows))
    windows = maps.values()
    return Tables(
        len(split.operators), len(split.rows),
        table(OPERATOR, rows=[op.rows for op in split.operators],
              reads=_starts(len(op.operator.inputs) for op in split.operators),
              makes=_starts(map(len, made))),
        table(READ, value=[v for v, _ in reads], map=[starts[key] for _, key in reads],
              ascending=[ascending[key] for _, key in reads]),
        table(WINDOW, first=_joined([m.first for m in windows]),
              last=_joined([m.last for m in windows])),
        whole_numbers([v for outputs in made for v in outputs]),
        table(VALUE, rows=split.rows, producer=[split.graph.producer.get(v, -1) for v in values],
              row_bytes=[0 if v in split.folded else split.nbytes(v, 1) for v in values],
              record_bytes=[split.nbytes(v, 1) if v in split.folded else 0 for v in values]),
        whole_numbers(split.graph.inputs), whole_numbers(split.graph.output_values),
        sum(split.rows[v] for v in split.graph.inputs))


@_once_for_each
def plain_tables_of(split: SplitGraph) -> Tables:
    """Return the same for kernels that are not compiled."""
    return as_plain(tables_of(split))


def _joined(columns: Sequence[Array]) -> Array:
    return np.concatenate([*columns, whole_numbers(())])


def _content(row_map: RowMap) -> tuple[bytes, bytes]:
    return row_map.first.tobytes(), row_map.last.tobytes()


def _starts(counts: Iterable[int]) -> list[int]:
    return list(accumulate(counts, initial=0))


def _ascends(table: npt.NDArray[np.int64]) -> bool:
    return bool((np.diff(table) >= 0).all())


@lru_cache(maxsize=4096)
def band_ends(bands: int, growth: float) -> tuple[float, ...]:
    """
    Return which fraction of a part is done after each band.

    Only operations that every processor rounds alike, since both sides of an
    inference must come to the same rows.
    """
    sizes = accumulate([growth] * (bands - 1), lambda size, by: size * by, initial=1.0)
    ends = list(accumulate(sizes))
    return (*(end / ends[-1] for end in ends[:-1]), 1.0)


def layout_of(partition: Partition) -> Layout:
    """Return a partition as a record."""
    stages = partition.stages
    parts = [(s.robot_bands, s.robot_pace) for s in stages]
    parts += [(s.server_bands, s.server_pace) for s in stages]
    ends = [band_ends(bands, pace.growth) for bands, pace in parts]
    return Layout(
        len(stages),
        table(STAGE, stop=[s.stop for s in stages], share=[s.share for s in stages]),
        table(PART, cuts=_starts(map(len, ends)), upward=[pace.upward for _, pace in parts],
              by_input=[pace.by_input for _, pace in parts]),
        np.array([fraction for part in ends for fraction in part]))


def most_steps(partition: Partition) -> int:
    """Return how many compute steps a side may have at most."""
    stages = partition.stages
    sizes = [b.stop - a for a, b in zip((0, *(s.stop for s in stages)), stages)]
    return max(sum(size * s.robot_bands for size, s in zip(sizes, stages)),
               sum(size * s.server_bands for size, s in zip(sizes, stages)))


def most_transfers(t: Tables, steps: int) -> int:
    """Return how many transfers there may be at most, with so many steps on a side."""
    return 2 * (steps + t.values) + t.input_rows


def work_for(t: Tables, steps: int) -> Work:
    """Return scratch tables for at most so many compute steps on a side."""
    transfers = most_transfers(t, steps)
    entries = steps + 2 * transfers
    rows = {'computed': 2 * t.operators, 'wanted': 2 * t.values, 'lack': 2 * t.values,
            'walk': t.operators,
            'edge': t.values, 'mark': t.input_rows, 'step': 2 * steps, 'transfer': transfers,
            'input_order': transfers, 'entry': 2 * entries, 'side': 2, 'count': 1}
    return Work(steps, entries, **{name: np.zeros(rows[name], row) for name, row in WORK.items()})


def plain_work_for(t: Tables, steps: int) -> Work:
    """Return the same for kernels that are not compiled; its tables grow as they are filled."""
    entries = steps + 2 * most_transfers(t, steps)
    return Work(steps, entries, **{name: PlainScratch(row) for name, row in WORK.items()})


def link_cost_of(cost: CostModel, link: LinkModel, encodings: Encodings) -> LinkCost:
    """Return what crossing a link costs if values cross in some encodings."""
    chosen = dict(encodings)
    encoding = [chosen.get(v, NONE) for v in range(len(cost.split.rows))]
    wires = [cost.wire.get(each, _PLAIN) for each in enumerate(encoding)]
    at_source = [cost.moving.get(side, _FREE) for side in SIDES]
    at_target = at_source[::-1]
    chunk = chunk_bytes_at(link.up)
    pieces = [piece_bytes(name, value.dtype, chunk, wire.ratio)
              for name, value, wire in zip(encoding, cost.split.graph.values, wires)]
    return LinkCost(
        table(WAY, lane=[0, 0 if link.shared else 1], rate=[link.up, link.down],
              overhead=[link.overhead] * 2, delay=[link.delay] * 2,
              send_chunk=[moving.send_chunk for moving in at_source],
              send_byte=[moving.send_byte for moving in at_source],
              receive_chunk=[moving.receive_chunk for moving in at_target],
              receive_byte=[moving.receive_byte for moving in at_target],
              encodes=[side in cost.moving for side in SIDES],
              decodes=[side in cost.moving for side in SIDES[::-1]]),
        np.array([wire.ratio for wire in wires]),
        whole_numbers(pieces),
        table(CODING, encode=[wire.encode.get(side, 0.0) for side in SIDES for wire in wires],
              decode=[wire.decode.get(side, 0.0) for side in SIDES[::-1] for wire in wires]))


def step_costs_for(cost: CostModel, transfers: int) -> StepCosts:
    """Return what operators cost, with room for so many transfers."""
    tables = cost.seconds[SIDES[0]]
    joining = [cost.joining.get(side, _TOGETHER) for side in SIDES]
    seconds = np.concatenate([table for side in SIDES for table in cost.seconds[side]])
    return StepCosts(len(seconds) // 2, whole_numbers(_starts(map(len, tables))), seconds,
                     table(JOIN, once=[each.once for each in joining],
                           byte=[each.byte for each in joining]),
                     np.zeros(transfers, TRANSFER_COST))


def plain_step_costs(cost: CostModel) -> StepCosts:
    """Return the same for kernels that are not compiled, with room for any transfers."""
    return as_plain(step_costs_for(cost, 0))._replace(transfer=PlainScratch(TRANSFER_COST))


def clock_for(entries: int, transfers: int) -> Clock:
    """Return tables for what happens when."""
    rows = {'device': 2, 'free': 2, 'entry': entries, 'transfer': transfers}
    return Clock(**{name: np.zeros(rows[name], row) for name, row in CLOCK.items()})


def plain_clock() -> Clock:
    """Return the same for kernels that are not compiled; its tables grow as they are filled."""
    return Clock(**{name: PlainScratch(row) for name, row in CLOCK.items()})
