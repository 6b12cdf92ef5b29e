# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""
What a program copies because an operator reads rows of several pieces.

Rows are held as they were computed or received, in pieces.  Rows of one piece
are read where they are; those of several, as where a band reads the last rows
of the band before it, are put together in new memory first
(`schedule/program.py`).
"""
from __future__ import annotations

from collections import defaultdict
from typing import NamedTuple

from intradp_ros.schedule.schedule import Compute, Receive, Schedule
from intradp_ros.split.local_operator import SplitGraph
from intradp_ros.split.regions.region import Region


class Joined(NamedTuple):
    """How often rows are put together for a step, and how many bytes that makes."""

    times: int
    nbytes: int


def joins_of(split: SplitGraph, schedule: Schedule, device: str, *, has_inputs: bool,
             ) -> tuple[Joined, ...]:
    """
    Return for each step of a device's program what is put together for it.

    A device that `has_inputs` holds all rows of the graph's.  Rows that were
    put together for the last operator that read a value are there for the
    next one.  Records of folded values are few, and not counted.
    """
    pieces: dict[int, list[Region]] = defaultdict(list)
    if has_inputs:
        pieces.update((value, [split.whole(value)]) for value in split.graph.inputs)
    together: dict[int, Region] = {}
    found = []
    for step in schedule.programs[device]:
        times = nbytes = 0
        if isinstance(step, Receive):
            transfer = schedule.transfers[step.transfer]
            pieces[transfer.value].append(transfer.region)
        elif isinstance(step, Compute):
            op = split.operators[step.operator]
            for value, row_map in zip(op.operator.inputs, op.maps):
                need = row_map(step.region)
                if value in split.folded or not need or together.get(value) == need \
                        or any(p.start <= need.start and need.stop <= p.stop
                               for p in pieces[value]):
                    continue
                together[value] = need
                times += 1
                nbytes += split.nbytes(value, need.rows)
            for made in op.operator.outputs:
                if made is not None:
                    pieces[made].append(step.region)
        found.append(Joined(times, nbytes))
    return tuple(found)
