# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""
From a partition to the schedule: steps of both sides and the transfers between them.

Bands turn a stage into a pipeline: the rows that leave the stage are cut
into as many pieces, and each piece asks backwards only for the rows that the
pieces before it have not computed, so halos are computed once.
"""
from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from intradp_ros.operators.local_operator import SplitGraph
from intradp_ros.operators.region import Region
from intradp_ros.planning.assignment import assign_one, OTHER, Rows
from intradp_ros.planning.partition import Partition
from intradp_ros.planning.schedule import (
    Compute,
    Receive,
    ROBOT,
    Schedule,
    Send,
    SIDES,
    Step,
    Transfer,
)
from intradp_ros.wire.codecs.names import NONE


def lower(split: SplitGraph, partition: Partition) -> Schedule:
    """
    Write the programs of robot and server for one partition.

    Raises
    ------
    ValueError
        If the stages do not tile the graph, or encodings are for values that
        it has not.

    """
    partition.check(len(split.operators), len(split.rows))
    parts = _parts(split, partition)
    computes = {side: _compute_steps(split, partition, parts, side) for side in SIDES}
    transfers = _transfers(split, parts, computes, dict(partition.encodings))
    programs = {side: _program(split, parts, side, computes[side], transfers) for side in SIDES}
    return Schedule(transfers, programs)


@dataclass(frozen=True)
class _Parts:
    """The assignment of one partition as plain regions."""

    stage: list[int]
    compute: dict[str, list[Region]]
    crossing: dict[str, list[Region]]
    missing: dict[str, list[Region]]


def _parts(split: SplitGraph, partition: Partition) -> _Parts:
    a = assign_one(split, partition)

    def plain(rows: dict[str, list[Rows]]) -> dict[str, list[Region]]:
        return {side: [r.region(0) for r in rows[side]] for side in SIDES}

    return _Parts(a.stage.tolist(), plain(a.compute), plain(a.crossing), plain(a.missing))


def _compute_steps(split: SplitGraph, partition: Partition, parts: _Parts, side: str,
                   ) -> list[Compute]:
    steps: list[Compute] = []
    start = 0
    for stage in partition.stages:
        bands = stage.robot_bands if side == ROBOT else stage.server_bands
        members = [i for i in range(start, stage.stop) if parts.compute[side][i]]
        done = {i: parts.compute[side][i].start for i in members}
        for band in range(1, bands + 1):
            stops = _band_stops(split, parts, side, members, done, band / bands)
            steps += [Compute(i, Region(done[i], stops[i]))
                      for i in members if stops[i] > done[i]]
            done = stops
        start = stage.stop
    return steps


def _band_stops(split: SplitGraph, parts: _Parts, side: str, members: list[int],
                done: dict[int, int], fraction: float) -> dict[int, int]:
    """How far each operator of a stage must be when `fraction` of what leaves is there."""
    if fraction == 1.0:
        return {i: parts.compute[side][i].stop for i in members}
    stops = dict(done)
    for i in reversed(members):
        op = split.operators[i]
        if any(parts.crossing[s][v] for v in op.operator.outputs if v is not None for s in SIDES):
            region = parts.compute[side][i]
            stops[i] = max(stops[i], region.start + int(region.rows * fraction))
        if stops[i] == done[i]:
            continue
        for value, rowmap in zip(op.operator.inputs, op.maps):
            producer = split.graph.producer.get(value)
            if producer in stops:
                stops[producer] = max(stops[producer], rowmap(Region(done[i], stops[i])).stop)
    return stops


def _transfers(split: SplitGraph, parts: _Parts, computes: dict[str, list[Compute]],
               encodings: Mapping[int, str]) -> tuple[Transfer, ...]:
    found: list[Transfer] = []
    for target in SIDES:
        for value, missing in enumerate(parts.missing[target]):
            if not missing:
                continue
            source = OTHER[target]
            for region in _pieces(missing, _cuts(split, value, computes, source, target)):
                found.append(Transfer(len(found), value, region, source, target,
                                      encodings.get(value, NONE)))
            _check_source(split, parts, value, missing, source)
    return tuple(found)


def _check_source(split: SplitGraph, parts: _Parts, value: int, missing: Region, source: str,
                  ) -> None:
    producer = split.graph.producer.get(value)
    if producer is not None and not parts.compute[source][producer].covers(missing):
        raise AssertionError(
            f'{source} should send rows {missing} of value {value} but computes '
            f'{parts.compute[source][producer]}')


def _cuts(split: SplitGraph, value: int, computes: dict[str, list[Compute]],
          source: str, target: str) -> Iterator[int]:
    """Rows where a value's transfer may be cut: a sender's band ends, or what a receiver needs."""
    producer = split.graph.producer.get(value)
    if producer is not None:
        yield from (s.region.stop for s in computes[source] if s.operator == producer)
        return
    for step in computes[target]:
        op = split.operators[step.operator]
        for read, rowmap in zip(op.operator.inputs, op.maps):
            if read == value:
                yield rowmap(step.region).stop


def _pieces(region: Region, cuts: Iterator[int]) -> Iterator[Region]:
    start = region.start
    for stop in sorted({c for c in cuts if region.start < c < region.stop} | {region.stop}):
        yield Region(start, stop)
        start = stop


def _program(split: SplitGraph, parts: _Parts, side: str, computes: list[Compute],
             transfers: tuple[Transfer, ...]) -> tuple[Step, ...]:
    incoming = _Incoming(transfers, side)
    outgoing = _Outgoing(transfers, side)
    steps: list[Step] = []
    if side == ROBOT:
        steps += _input_sends(split, transfers)
    for compute in computes:
        op = split.operators[compute.operator]
        for value, rowmap in zip(op.operator.inputs, op.maps):
            steps += incoming.wait_for(value, rowmap(compute.region))
        steps.append(compute)
        for produced in op.operator.outputs:
            steps += outgoing.ready(produced, compute.region.stop)
    if side == ROBOT:
        for value in split.graph.output_values:
            steps += incoming.wait_for(value, parts.crossing[ROBOT][value])
    return tuple(steps)


class _Incoming:
    """Transfers to one side that its program has not waited for yet."""

    def __init__(self, transfers: tuple[Transfer, ...], side: str) -> None:
        self.open: dict[int, list[Transfer]] = {}
        for t in transfers:
            if t.target == side:
                self.open.setdefault(t.value, []).append(t)

    def wait_for(self, value: int, need: Region) -> list[Receive]:
        waits = [t for t in self.open.get(value, ()) if t.region.intersect(need)]
        for t in waits:
            self.open[value].remove(t)
        return [Receive(t.id) for t in waits]


class _Outgoing:
    """Transfers from one side that its program has not sent yet."""

    def __init__(self, transfers: tuple[Transfer, ...], side: str) -> None:
        self.open: dict[int, list[Transfer]] = {}
        for t in transfers:
            if t.source == side:
                self.open.setdefault(t.value, []).append(t)

    def ready(self, value: int | None, stop: int) -> list[Send]:
        waiting = self.open.get(value, []) if value is not None else []
        done = [t for t in waiting if t.region.stop <= stop]
        for t in done:
            self.open[t.value].remove(t)
        return [Send(t.id) for t in done]


def _input_sends(split: SplitGraph, transfers: tuple[Transfer, ...]) -> list[Send]:
    """Send the input's rows at once, in row order; several inputs take turns."""
    inputs = set(split.graph.inputs)
    mine = [t for t in transfers if t.source == ROBOT and t.value in inputs]
    mine.sort(key=lambda t: t.region.stop / split.rows[t.value])
    return [Send(t.id) for t in mine]


