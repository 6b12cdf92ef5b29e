# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""
Profiles of networks that nobody recorded, from the costs of operators of recorded ones.

An operator takes a fixed time, and a time for each floating point operation
and for each byte of operands and results.  These three were fitted to the
recordings for each kind of operator and each device
(``tools/fit_operator_costs.py``).  It is rough: see the errors in the file.
"""
from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
import json

from intradp_lab.testbed.package_data import package_data
from intradp_lab.testbed.recorded import FIXED, timing_by_rows
from intradp_ros.graph.operator_graph import iter_refs, ParameterRef
from intradp_ros.profiling.profile import Profile
from intradp_ros.split.calls.call import Call
from intradp_ros.split.checks.flops import operator_flops
from intradp_ros.split.local_operator import LocalOperator, SplitGraph

#: Convolutions of planes and products; grouped convolutions; convolutions of volumes; the rest.
DENSE, GROUPED, VOLUME, OTHER = 'dense', 'grouped', 'volume', 'other'
KINDS = (DENSE, GROUPED, VOLUME, OTHER)
_PRODUCTS = ('linear', 'addmm', 'mm', 'matmul', 'bmm')


@dataclass(frozen=True)
class Work:
    """What an operator has to do: its kind, floating point operations, bytes touched."""

    kind: str
    flops: float
    nbytes: float


@dataclass(frozen=True)
class OperatorCost:
    """Seconds of an operator of one kind: for each call, operation and byte."""

    call: float
    flop: float
    byte: float

    def seconds(self, work: Work) -> float:
        """Return what some work takes."""
        return self.call + self.flop * work.flops + self.byte * work.nbytes


@dataclass(frozen=True)
class DeviceCosts:
    """Costs by kind of operator on one device."""

    device: str
    kinds: Mapping[str, OperatorCost]


def shipped_costs() -> dict[str, DeviceCosts]:
    """Return the fitted costs of the devices of the recordings, by side."""
    data = json.loads(package_data('operator_costs.json').read_text())
    return {side: DeviceCosts(found['device'], {
        kind: OperatorCost(*numbers) for kind, numbers in found['kinds'].items()})
        for side, found in data['devices'].items()}


def work_of(split: SplitGraph, op: LocalOperator) -> Work:
    """Return what an operator has to do on its whole input."""
    graph, operator = split.graph, op.operator
    values = (*operator.inputs, *(v for v in operator.outputs if v is not None))
    parameters = iter_refs((operator.args, operator.kwargs), (ParameterRef,))
    nbytes = sum(graph.values[v].nbytes for v in values) + sum(
        graph.parameters[ref.name].nbytes for ref in parameters)
    return Work(_kind(split, op), operator_flops(graph, operator), nbytes)


def _kind(split: SplitGraph, op: LocalOperator) -> str:
    name = op.operator.target.removeprefix('aten.').partition('.')[0]
    if 'conv' not in name:
        return DENSE if name in _PRODUCTS else OTHER
    if '3d' in name:
        return VOLUME
    return GROUPED if Call.of(split.graph, op.operator).argument('groups') > 1 else DENSE


def profile_from_costs(split: SplitGraph, digest: str, side: str, costs: DeviceCosts,
                       whole_seconds: float | None = None) -> Profile:
    """
    Return a device's profile of any captured model from fitted costs.

    Where it is known how long the whole model takes, all operators are
    scaled so that they add up to that.
    """
    seconds = [costs.kinds[work.kind].seconds(work) if work.nbytes else 0.0
               for work in (work_of(split, op) for op in split.operators)]
    scale = whole_seconds / sum(seconds) if whole_seconds else 1.0
    timings = tuple(timing_by_rows(op, s * scale, FIXED[side])
                    for op, s in zip(split.operators, seconds))
    return Profile(digest, split.axis, f'{costs.device}, times scaled by operator costs', 1,
                   timings, sum(seconds) * scale)
