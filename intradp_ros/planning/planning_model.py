# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""
A network as its planner sees it: nodes with seconds and bytes, and the values between them.

Whatever has these figures can be planned for: a captured network with a
measured profile, or a published layer profile without any weights.
"""
from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
import math

import numpy as np
import numpy.typing as npt

from intradp_ros.cluster.device import Device

#: Stands for the device that has the inputs and takes the outputs.
SOURCE = -1

BatchSeconds = Mapping[int, tuple[float, ...]]
"""Seconds of every node, by how many samples it computes at once."""


@dataclass(frozen=True, slots=True)
class Node:
    """
    Operators that run on one device, one after the other.

    `seconds` are those of one sample on a device of speed 1.  `weight_bytes`
    stay in memory; `working_bytes` are held while a sample is computed.
    `operators` are indices in the running order of the graph, ascending;
    there are none where only a profile is known.
    """

    name: str
    seconds: float
    weight_bytes: float = 0.0
    working_bytes: float = 0.0
    operators: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Flow:
    """
    A value that goes from one node (or the source) to others.

    `maker` and `readers` are indices of nodes, or `SOURCE`; `nbytes` are
    those of one sample.  `value` is its index in the graph, -1 where there is
    none.
    """

    maker: int
    readers: tuple[int, ...]
    nbytes: float
    value: int = -1


@dataclass(frozen=True)
class PlanningModel:
    """
    Nodes in an order in which each reads only what earlier ones made, and their flows.

    `measured` has the seconds of devices whose times are known by
    themselves, by the device's name; any other device takes a node's
    `seconds` divided by its speed.

    :raises ValueError: if a figure is negative, infinite or not a number, a node reads what is not
        there yet, or a table has not one entry for each node.
    """

    name: str
    nodes: tuple[Node, ...]
    flows: tuple[Flow, ...]
    digest: str = ''
    measured: Mapping[str, BatchSeconds] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Check order and figures."""
        if not self.nodes:
            raise ValueError(f'{self.name or "the model"} has no operators to plan for')
        for node in self.nodes:
            _check_figures(node.name, (node.seconds, node.weight_bytes, node.working_bytes))
        for flow in self.flows:
            _check_figures('a value', (flow.nbytes,))
            ends = (*flow.readers, flow.maker)
            late = any(reader != SOURCE and reader <= flow.maker for reader in flow.readers)
            if late or not all(SOURCE <= end < len(self.nodes) for end in ends):
                raise ValueError(f'a value goes from node {flow.maker} to {flow.readers}: nodes '
                                 'read only what earlier ones made')
        for device, tables in self.measured.items():
            for batch, seconds in tables.items():
                _check_figures(f'the profile of {device}', seconds)
                if batch < 1 or len(seconds) != len(self.nodes):
                    raise ValueError(f'the profile of {device} for {batch} samples has '
                                     f'{len(seconds)} times for {len(self.nodes)} nodes')

    @property
    def weight_bytes(self) -> float:
        """Bytes of all weights."""
        return sum(node.weight_bytes for node in self.nodes)

    def seconds(self, device: Device, samples: int) -> npt.NDArray[np.float64]:
        """
        Return what each node takes on a device for so many samples at once, shape (nodes,).

        Between measured batches it is linear, beyond the largest and below
        the smallest in proportion.
        """
        tables = self.measured.get(device.name)
        if not tables:
            once = np.array([node.seconds for node in self.nodes])
            return samples * once / device.speed
        batches = sorted(tables)
        rows = np.array([tables[batch] for batch in batches])
        if samples >= batches[-1] or samples <= batches[0]:
            edge = 0 if samples <= batches[0] else -1
            scaled: npt.NDArray[np.float64] = rows[edge] * (samples / batches[edge])
            return scaled
        above = next(k for k, batch in enumerate(batches) if batch > samples)
        low, high = batches[above - 1], batches[above]
        part = (samples - low) / (high - low)
        between: npt.NDArray[np.float64] = (1 - part) * rows[above - 1] + part * rows[above]
        return between


def working_bytes(model: PlanningModel, first: int, last: int) -> float:
    """
    Return the most bytes of one sample that are alive while the nodes of a range run.

    A value that is made there stays until its last reader there has run, or
    until the end where others read it.
    """
    alive: list[float] = [model.nodes[k].working_bytes for k in range(first, last)]
    for flow in model.flows:
        if first <= flow.maker < last:
            outside = any(r == SOURCE or r >= last for r in flow.readers)
            end = last if outside else max(flow.readers)
            for k in range(flow.maker + 1, end):
                if k not in flow.readers:  # of what a node reads itself its own bytes count
                    alive[k - first] += flow.nbytes
    return max(alive)


def _check_figures(name: str, figures: tuple[float, ...]) -> None:
    if not all(math.isfinite(figure) and figure >= 0 for figure in figures):
        raise ValueError(f'{name} needs seconds and bytes of 0 or more, got {figures[:3]}')
