# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""Split graphs, partitions and costs as the records that the kernels take."""
from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import lru_cache, wraps
from itertools import accumulate
from weakref import WeakKeyDictionary

import numpy as np
import numpy.typing as npt

from intradp_ros.link.chunk_size import chunk_bytes_at
from intradp_ros.profiling.profile import MovingCost
from intradp_ros.schedule.cost import CostModel, LinkModel, WireCost
from intradp_ros.schedule.schedule import SIDES
from intradp_ros.split.local_operator import SplitGraph
from intradp_ros.split.regions.region import RowMap
from intradp_ros.systems.sharing.judge.records import (
    as_lists,
    Charges,
    Clock,
    Layout,
    LinkCost,
    pack,
    Tables,
    Work,
)
from intradp_ros.systems.sharing.partition.partition import Encodings, Partition
from intradp_ros.wire.codecs.names import NONE

_PLAIN, _FREE = WireCost(), MovingCost()


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
    return pack(Tables, {
        'rows': [op.rows for op in split.operators],
        'reads': _starts(len(op.operator.inputs) for op in split.operators),
        'read_value': [v for v, _ in reads],
        'read_map': [starts[key] for _, key in reads],
        'ascending': [int(ascending[key]) for _, key in reads],
        'first': [a for m in maps.values() for a in m.first.tolist()],
        'last': [b for m in maps.values() for b in m.last.tolist()],
        'makes': _starts(map(len, made)),
        'made': [v for outputs in made for v in outputs],
        'value_rows': split.rows,
        'producer': [split.graph.producer.get(v, -1) for v in values],
        'row_bytes': [0 if v in split.folded else split.nbytes(v, 1) for v in values],
        'record_bytes': [split.nbytes(v, 1) if v in split.folded else 0 for v in values],
        'inputs': split.graph.inputs,
        'outputs': split.graph.output_values,
    }, operators=len(split.operators), values=len(split.rows))


@_once_for_each
def listed_tables_of(split: SplitGraph) -> Tables:
    """Return the same as lists, for kernels that are not compiled."""
    return as_lists(tables_of(split))


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
    return pack(Layout, {
        'stops': [s.stop for s in stages],
        'cuts': _starts(map(len, ends)),
        'upward': [int(pace.upward) for _, pace in parts],
        'by_input': [int(pace.by_input) for _, pace in parts],
    }, {
        'share': [s.share for s in stages],
        'cut': [fraction for part in ends for fraction in part],
    }, stages=len(stages))


def most_steps(partition: Partition) -> int:
    """Return how many compute steps a side may have at most."""
    stages = partition.stages
    sizes = [b.stop - a for a, b in zip((0, *(s.stop for s in stages)), stages)]
    return max(sum(size * s.robot_bands for size, s in zip(sizes, stages)),
               sum(size * s.server_bands for size, s in zip(sizes, stages)))


def most_transfers(t: Tables, steps: int) -> int:
    """Return how many transfers there may be at most, with so many steps on a side."""
    return 2 * (steps + t.values) + _input_rows(t)


def _input_rows(t: Tables) -> int:
    return int(sum(t.x[t.value_rows + v] for v in t.x[t.inputs:t.inputs_end]))


def work_for(t: Tables, steps: int) -> Work:
    """Return scratch tables for at most so many compute steps on a side."""
    transfers = most_transfers(t, steps)
    entries = steps + 2 * transfers
    lengths = dict.fromkeys(Work._fields[3:], 2 * t.values)
    lengths |= dict.fromkeys(('done_lo', 'done_hi', 'first_step', 'last_step'), 2 * t.operators)
    lengths |= dict.fromkeys(('stage', 'progress', 'goal'), t.operators)
    lengths |= dict.fromkeys(('step_op', 'step_lo', 'step_hi', 'step_next'), 2 * steps)
    lengths |= {name: transfers for name in Work._fields if name.startswith('transfer_')}
    lengths |= dict.fromkeys(('kind', 'item', 'lo', 'rows'), 2 * entries)
    lengths |= {'mark': _input_rows(t), 'input_order': transfers, 'counts': 10}
    return pack(Work, lengths, steps=steps, entries=entries)


def link_cost_of(cost: CostModel, link: LinkModel, encodings: Encodings) -> LinkCost:
    """Return what crossing a link costs if values cross in some encodings."""
    chosen = dict(encodings)
    wires = [cost.wire.get((v, chosen.get(v, NONE)), _PLAIN) for v in range(len(cost.split.rows))]
    taken = [cost.moving.get(side, _FREE) for side in SIDES]
    return pack(LinkCost, {'lane': [0, 0 if link.shared else 1]}, {
        'rate': [link.up, link.down],
        'overhead': [link.overhead] * 2,
        'delay': [link.delay] * 2,
        'ratio': [wire.ratio for wire in wires],
        'encode': [wire.encode.get(side, 0.0) for side in SIDES for wire in wires],
        'decode': [wire.decode.get(side, 0.0) for side in SIDES[::-1] for wire in wires],
        'send': [seconds for moving in taken for seconds in (
            moving.send_chunk, moving.send_byte)],
        'receive': [seconds for moving in taken[::-1] for seconds in (
            moving.receive_chunk, moving.receive_byte)],
        'encodes': [float(side in cost.moving) for side in SIDES],
        'decodes': [float(side in cost.moving) for side in SIDES[::-1]],
    }, chunk=chunk_bytes_at(link.up))


def charges_for(cost: CostModel, transfers: int) -> Charges:
    """Return what operators cost, with room for so many transfers."""
    tables = cost.seconds[SIDES[0]]
    seconds = np.concatenate([table for side in SIDES for table in cost.seconds[side]])
    return pack(Charges, {
        'at': _starts(map(len, tables)), **dict.fromkeys(('lane', 'bytes'), transfers),
    }, {
        'compute': seconds,
        **dict.fromkeys(('encode', 'occupy', 'later', 'send', 'receive'), transfers),
    }, total=len(seconds) // 2)


def clock_for(entries: int, transfers: int) -> Clock:
    """Return tables for what happens when."""
    return pack(Clock, {'place': 2, 'sent': 2}, {
        **dict.fromkeys(('now', 'busy', 'sending', 'free'), 2),
        **dict.fromkeys(('began', 'ended'), entries),
        **dict.fromkeys(('left', 'arrived'), transfers)})
