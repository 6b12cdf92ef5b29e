# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""Finishing an inference alone, from the rows that are still held."""
from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch

from intradp_ros.runtime.execution.interpreter import Execution, SendTransfer
from intradp_ros.runtime.transport.timeline import Recorder
from intradp_ros.schedule.program import compile_steps
from intradp_ros.schedule.schedule import Compute, ROBOT, Schedule, Send, Transfer
from intradp_ros.schedule.tiling import missing_piece
from intradp_ros.split.local_operator import Parameters, SplitGraph
from intradp_ros.split.regions.region import EMPTY, Region

Held = Sequence[tuple[int, Region, torch.Tensor]]


def missing_steps(split: SplitGraph, held: Mapping[int, Sequence[Region]],
                  wanted: Mapping[int, Region] | None = None) -> list[Compute]:
    """
    Return the compute steps that lead from held rows to wanted ones, by default all outputs.

    Rows that are held are not computed again, as far as one region of each
    operator allows.
    """
    demand = {v: split.whole(v) for v in split.graph.output_values}
    if wanted is not None:
        demand = dict(wanted)
    steps: list[Compute] = []
    for op in reversed(split.operators):
        region = EMPTY
        for value in op.operator.outputs:
            if value is not None:
                find = missing_piece if value in split.folded else _still_missing
                region = region.hull(find(held.get(value, ()), demand.get(value, EMPTY)))
        if not region:
            continue
        steps.append(Compute(op.operator.id, region))
        for value, rowmap in zip(op.operator.inputs, op.maps):
            demand[value] = demand.get(value, EMPTY).hull(rowmap(region))
    return steps[::-1]


def _still_missing(held: Sequence[Region], demand: Region) -> Region:
    """Trim held rows off both ends of what is demanded."""
    start, stop = demand
    for region in sorted(held):
        if region.start <= start < region.stop:
            start = region.stop
    for region in sorted(held, key=lambda r: -r.stop):
        if region.start < stop <= region.stop:
            stop = region.start
    return Region(start, stop) if stop > start else EMPTY


def held_pieces(execution: Execution) -> list[tuple[int, Region, torch.Tensor]]:
    """Return the rows that an execution which stopped still holds."""
    found = []
    for piece in execution.program.pieces:
        tensor = execution.slots[piece.slot]
        if tensor is not None:
            found.append((piece.value, piece.region, tensor))
    return found


def finish_alone(split: SplitGraph, held: Held, parameters: Parameters) -> dict[int, torch.Tensor]:
    """Compute all outputs from held rows; `held` must include the graph's inputs."""
    return recovery(split, held, parameters).run({})


def recovery(split: SplitGraph, held: Held, parameters: Parameters) -> Execution:
    """Return the execution that leads from held rows to all outputs, ready to run."""
    regions: dict[int, list[Region]] = {}
    for value, region, _ in held:
        regions.setdefault(value, []).append(region)
    steps = missing_steps(split, regions)
    program = compile_steps(split, steps, parameters, [(v, r) for v, r, _ in held],
                            split.graph.output_values)
    return _started(Execution(program, Recorder(ROBOT)), split, held)


def rows_for(split: SplitGraph, held: Held, steps: Sequence[Compute], schedule: Schedule,
             wanted: Sequence[Transfer], send: SendTransfer) -> Execution:
    """Return the execution that sends the rows of transfers, ready to run; it keeps all rows."""
    program = compile_steps(split, [*steps, *(Send(t.id) for t in wanted)],
                            split.graph.parameters, [(v, r) for v, r, _ in held], (),
                            transfers=schedule.transfers, keeps=True)
    return _started(Execution(program, Recorder(ROBOT), send=send), split, held)


def _started(execution: Execution, split: SplitGraph, held: Held) -> Execution:
    for slot, (_, _, tensor) in enumerate(held):
        execution.slots[slot] = split.device.take(tensor)
    return execution
