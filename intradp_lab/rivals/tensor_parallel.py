# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""
Tensor parallelism: every heavy layer is shared by both sides and gathered behind it.

After DINA (Mohammed et al., INFOCOM 2020), with which the paper's Tables 1
and 2 show why nobody does this over Wi-Fi.  Here the rows of a layer's
output are shared instead of its channels, which computes and sends as much.
"""
from __future__ import annotations

from collections.abc import Mapping

from intradp_ros.schedule.cost import CostModel
from intradp_ros.schedule.schedule import (
    Compute,
    Receive,
    ROBOT,
    Schedule,
    Send,
    SERVER,
    SIDES,
    Step,
    Transfer,
)
from intradp_ros.split.local_operator import SplitGraph
from intradp_ros.split.regions.region import Region

_OTHER = {ROBOT: SERVER, SERVER: ROBOT}
_HEAVY = ('conv', 'linear', 'addmm', 'matmul', 'bmm', 'mm', 'attention')


class _Writer:
    """Writes both programs, layer by layer."""

    def __init__(self, split: SplitGraph) -> None:
        self.split = split
        self.transfers: list[Transfer] = []
        self.programs: dict[str, list[Step]] = {side: [] for side in SIDES}

    def inputs(self) -> None:
        """Send what the robot starts with."""
        for value in self.split.graph.inputs:
            self._exchange(value, {ROBOT: self.split.whole(value)})

    def both(self, index: int) -> None:
        """Compute an operator whole on both sides."""
        for side in SIDES:
            self.programs[side].append(
                Compute(index, Region(0, self.split.operators[index].rows)))

    def shared(self, index: int, border: int) -> None:
        """Compute rows above the border on the robot, the others on the server; gather."""
        rows = self.split.operators[index].rows
        parts = {ROBOT: Region(0, border), SERVER: Region(border, rows)}
        for side, region in parts.items():
            self.programs[side].append(Compute(index, region))
        for value in self.split.operators[index].operator.outputs:
            if value is not None:
                self._exchange(value, parts)

    def _exchange(self, value: int, parts: Mapping[str, Region]) -> None:
        """Give each side what the other has; both send before they wait."""
        found = [Transfer(len(self.transfers) + i, value, region, side, _OTHER[side])
                 for i, (side, region) in enumerate(parts.items())]
        self.transfers += found
        for transfer in found:
            self.programs[transfer.source].append(Send(transfer.id))
        for transfer in found:
            self.programs[transfer.target].append(Receive(transfer.id))


def tensor_parallel(cost: CostModel) -> Schedule:
    """
    Return the schedule of tensor parallelism.

    The robot gets rows of each convolution and matrix product by the speeds
    of both sides; everything else runs on both.
    """
    split = cost.split
    robot, server = (sum(float(table[-1]) for table in cost.seconds[side])
                     for side in (ROBOT, SERVER))
    share = server / (robot + server) if robot + server else 0.5
    writer = _Writer(split)
    writer.inputs()
    for op in split.operators:
        name = op.operator.target.rpartition('aten.')[2]
        border = min(op.rows - 1, max(1, round(share * op.rows)))
        folded = any(v in split.folded for v in op.operator.outputs)
        if border < 1 or folded or not any(heavy in name for heavy in _HEAVY):
            writer.both(op.operator.id)
        else:
            writer.shared(op.operator.id, border)
    return Schedule(tuple(writer.transfers),
                    {side: tuple(steps) for side, steps in writer.programs.items()})
