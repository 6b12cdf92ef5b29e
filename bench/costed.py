# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""Networks with costs: operator times that somebody recorded, or rates that follow from them."""
from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path

import torch
from torch import nn

from intradp_lab.testbed.evaluation_results import FLOAT32, SENSOR
from intradp_lab.testbed.recorded import FIXED, profile_from_recording, read_recording, Recording
from intradp_lab.testbed.workloads import WORKLOADS
from intradp_ros.graph.capture import capture
from intradp_ros.graph.serialise import digest
from intradp_ros.profiling.profile import OperatorTiming
from intradp_ros.runtime.models.catalogue import load_factory
from intradp_ros.schedule.cost import CostModel, WireCost
from intradp_ros.schedule.schedule import ROBOT, SERVER, SIDES
from intradp_ros.split.checks.flops import operator_flops
from intradp_ros.split.local_operator import LocalOperator, SplitGraph
from intradp_ros.split.split_graph import split_graph
from intradp_ros.wire.codecs.names import BITS

ZOO = 'intradp_lab.zoo'
#: Of recordings by the model's name.
ARCHITECTURES = {w.recording: f'{ZOO}.{w.factory}' for w in WORKLOADS.values() if w.recording}
#: Networks nobody recorded; they take the bytes of a camera.
UNRECORDED = {
    'segmenter': f'{ZOO}.dense:segmenter',
    'depth': f'{ZOO}.dense:depth',
    'detector_s': f'{ZOO}.yolo:detector_s',
}
DENSE = ('agrnav', 'segmenter', 'depth')
#: An occupancy grid crosses as one bit a cell, packed and unpacked at a GB/s.
PACKED = WireCost(1 / 8, dict.fromkeys(SIDES, 1e-9), dict.fromkeys(SIDES, 1e-9))
_FLOPS_A_BYTE = 10.0  # operations in the time that a byte of memory takes


@dataclass(frozen=True)
class Case:
    """
    A network with what its operators cost.

    `inputs` is one of FLOAT32 and SENSOR; it is `dense` if there is an answer
    for every pixel or cell.
    """

    name: str
    inputs: str
    size: tuple[int, ...]
    dense: bool
    cost: CostModel

    @property
    def title(self) -> str:
        """Return name, inputs and size of the image."""
        return f'{self.name} {self.inputs} ' + 'x'.join(map(str, self.size[2:]))


class Camera(nn.Module):
    """A network on the bytes of a picture, which it makes numbers of around 0."""

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network

    def forward(self, picture: torch.Tensor) -> object:
        """Take uint8 ``1x3xHxW``."""
        return self.network((picture.float() - 127.0) / 64.0)


@lru_cache(maxsize=4)
def split_of(source: str, shape: tuple[int, ...], inputs: str) -> tuple[SplitGraph, str]:
    """Capture and split a network of the zoo; also return its digest."""
    module = load_factory(source).eval()
    pixels = inputs == SENSOR
    if pixels and source in ARCHITECTURES.values() and len(shape) == 4:
        module = Camera(module)
    graph = capture(module, (torch.zeros(shape, dtype=torch.uint8 if pixels else torch.float32),))
    return split_graph(graph), digest(graph)


def recorded_cases(folder: Path, names: Sequence[str] = (), sizes: Sequence[tuple[int, int]] = (),
                   inputs: Sequence[str] = (FLOAT32, SENSOR)) -> Iterator[Case]:
    """
    Yield the networks of all recordings in a folder, at the recorded size.

    `names` chooses some of them; `sizes` are more sizes (height, width) for
    pictures from the sensor, at which operator times grow with their output.
    """
    for path in sorted(folder.glob('*.json')):
        if names and path.stem not in names:
            continue
        recording = read_recording(path)
        for kind in inputs:
            yield mapped(path.stem, recording, recording.operators[0].shape, kind)
        shape = recording.operators[0].shape
        for size in sizes if len(shape) == 4 else ():
            yield mapped(path.stem, recording, (*shape[:2], *size), SENSOR)


def mapped(title: str, recording: Recording, shape: tuple[int, ...], inputs: str) -> Case:
    """
    Return the architecture of a recording with its costs: of that title, else what fits.

    Raises
    ------
    ValueError
        If no architecture of the zoo fits.

    """
    ranked = sorted(ARCHITECTURES.items(), key=lambda item: item[0] != title)
    reasons = []
    for name, source in ranked:
        try:
            split, key = split_of(source, shape, inputs)
            profiles = {side: profile_from_recording(split, key, recording, side)
                        for side in SIDES}
        except (ValueError, RuntimeError) as error:  # capturing fails at shapes of other networks
            reasons.append(f'{name}: {error}')
            continue
        cost = CostModel.from_profiles(split, profiles)
        occupancy = inputs == SENSOR and len(shape) == 5
        wire = {(split.graph.inputs[0], BITS): PACKED} if occupancy else {}
        return Case(title, inputs, shape, name in DENSE, replace(cost, wire=wire))
    raise ValueError(f'no network of the zoo fits the recording {title}: '
                     + '; '.join(reasons))


def unrecorded_cases(names: Iterable[str], sizes: Sequence[tuple[int, int]],
                     like: Iterable[Case]) -> Iterator[Case]:
    """Yield other networks at some sizes, as fast as the devices were on recorded ones."""
    rates = rates_of(like)
    for name in names:
        for height, width in sizes:
            shape = (1, 3, -(-height // 32) * 32, -(-width // 32) * 32)
            split, _ = split_of(UNRECORDED[name], shape, SENSOR)
            yield Case(name, SENSOR, shape, name in DENSE, costed(split, rates))


def rates_of(cases: Iterable[Case]) -> dict[str, float]:
    """Return the seconds that each device takes for a unit of work, on average over networks."""
    known = list(cases)
    work = sum(work_of(c.cost.split, op) for c in known for op in c.cost.split.operators)
    return {side: sum(float(t[-1]) for c in known for t in c.cost.seconds[side]) / work
            for side in SIDES}


def costed(split: SplitGraph, rates: dict[str, float]) -> CostModel:
    """Return costs by work, with the fixed part of recordings."""
    return CostModel(split, {side: tuple(
        _timing(op, work_of(split, op) * rates[side], FIXED[side]).table(op.rows)
        for op in split.operators) for side in (ROBOT, SERVER)})


def _timing(op: LocalOperator, seconds: float, fixed: float) -> OperatorTiming:
    if op.rows == 1:
        return OperatorTiming((1,), (fixed + seconds,))
    return OperatorTiming((1, op.rows), (fixed + seconds / op.rows, fixed + seconds))


def work_of(split: SplitGraph, op: LocalOperator) -> float:
    """Return an operator's operations, and the bytes it touches in operations."""
    values = [*op.operator.inputs, *(v for v in op.operator.outputs if v is not None)]
    return (operator_flops(split.graph, op.operator)
            + _FLOPS_A_BYTE * sum(split.nbytes(v, split.rows[v]) for v in values))
