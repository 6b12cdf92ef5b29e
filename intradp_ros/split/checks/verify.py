# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""Verify that a split graph computes what the unsplit graph computes."""
from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
import random
from typing import Any

import torch

from intradp_ros.graph.compare import TOLERANCE
from intradp_ros.graph.operator_graph import map_refs, OperatorGraph, ParameterRef, ValueRef
from intradp_ros.graph.reference_evaluation import run_graph, values_freed_after
from intradp_ros.split.checks.flops import operator_flops
from intradp_ros.split.local_operator import Kind, LocalOperator, SplitGraph
from intradp_ros.split.regions.region import Region

_OTHERS = TOLERANCE[torch.float32]  # integers, and floats that are not known


@dataclass(frozen=True, slots=True)
class OutputError:
    """
    How far an output is from the unsplit one.

    `absolute` is the largest difference of an element (infinite where one
    side alone is not a number), `spread` the largest minus the smallest
    finite element of the unsplit output, or the magnitude of its only one.
    `computed` is the narrowest floating point dtype on the way to it.
    """

    name: str
    dtype: torch.dtype
    absolute: float
    spread: float
    computed: torch.dtype | None = None

    @property
    def relative(self) -> float:
        """Largest difference in units of the spread; a constant output must be met exactly."""
        if self.absolute == 0.0:
            return 0.0
        return self.absolute / self.spread if self.spread > 0.0 else float('inf')

    @property
    def exact(self) -> bool:
        """
        Return whether the difference is float rounding.

        That is at most 1e-9 in double precision, 2e-2 where half precision is
        computed in, and 1e-4 else.
        """
        return self.relative <= rounding_limit(self.computed or self.dtype)


@dataclass(frozen=True, slots=True)
class VerifyReport:
    """Errors of all outputs, and how much of the work really ran in parts."""

    outputs: tuple[OutputError, ...]
    parts: int
    operators: int
    split_operators: int
    flops: int
    split_flops: int

    @property
    def exact(self) -> bool:
        """Return whether every output differs by rounding only."""
        return all(output.exact for output in self.outputs)

    @property
    def split_share(self) -> float:
        """Share of the floating point operations that ran in parts, 0 to 1."""
        return self.split_flops / self.flops if self.flops else 0.0

    @property
    def worst(self) -> OutputError | None:
        """The output with the largest relative error."""
        return max(self.outputs, key=lambda output: output.relative, default=None)


def verify(
        split: SplitGraph, inputs: Sequence[torch.Tensor], parts: int = 3,
        seed: int = 0) -> VerifyReport:
    """
    Run every local operator in random parts and compare with the unsplit graph.

    `inputs` are the graph's flattened inputs.  Each part is computed from the
    rows that the operator's maps ask for and nothing else; parts make up the
    value that the next operators read, so errors add up as they would in use.

    :raises GraphInputError: if the inputs do not fit the graph.
    :raises ValueError: if `parts` is less than 2.
    """
    if parts < 2:
        raise ValueError(f'a graph is verified in 2 or more parts, got {parts}')
    graph = split.graph
    expected = run_graph(split.captured, inputs)
    with torch.inference_mode():
        values = _run_in_parts(split, inputs, parts, random.Random(seed))
    computed = computed_in(graph)
    errors = tuple(
        output_error(graph.values[ref.value].name, split.device.give(values[ref.value]), result,
                     computed)
        for ref, result in zip(graph.outputs, expected) if isinstance(ref, ValueRef))
    flops = [operator_flops(graph, local.operator) for local in split.operators]
    ran_split = [local.kind is not Kind.GLOBAL and local.rows > 1 for local in split.operators]
    return VerifyReport(
        errors, parts, len(flops), sum(ran_split), sum(flops),
        sum(n for n, cut in zip(flops, ran_split) if cut))


def run_in_parts(
        split: SplitGraph, inputs: Sequence[torch.Tensor], parts: int = 3,
        seed: int = 0) -> list[Any]:
    """Return the graph's flattened outputs, every local operator run in random parts."""
    def fetch(ref: ValueRef | ParameterRef) -> torch.Tensor:
        if isinstance(ref, ValueRef):
            return split.device.give(values[ref.value])
        return split.captured.parameters[ref.name]

    with torch.inference_mode():
        values = _run_in_parts(split, inputs, parts, random.Random(seed))
    return list(map_refs(split.graph.outputs, fetch))


def run_part(
        split: SplitGraph, local: LocalOperator, region: Region,
        values: Mapping[int, torch.Tensor]) -> object:
    """Run one local operator for one region, from whole values, by handing over its rows."""
    kernel = local.bind(region, split.graph.parameters)
    handed = []
    for value, row_map in zip(local.operator.inputs, local.maps):
        handed.append(split.cut(value, values[value], row_map(region)))
    return kernel(handed)


def random_regions(rows: int, parts: int, source: random.Random) -> list[Region]:
    """Tile ``[0, rows)`` with `parts` random regions, or fewer where there are fewer rows."""
    cuts = sorted(source.sample(range(1, rows), min(parts, rows) - 1))
    return [Region(a, b) for a, b in zip([0, *cuts], [*cuts, rows])]


def _run_in_parts(
        split: SplitGraph, inputs: Sequence[torch.Tensor], parts: int,
        source: random.Random) -> dict[int, torch.Tensor]:
    values = dict(zip(split.graph.inputs, map(split.device.take, inputs)))
    freed = values_freed_after(split.graph)
    for local, free in zip(split.operators, freed):
        regions = random_regions(local.rows, parts, source)
        results = [run_part(split, local, region, values) for region in regions]
        values.update(_joined(split, local, results))
        for value in free:
            del values[value]
    return values


def _joined(
        split: SplitGraph, local: LocalOperator, results: Sequence[object],
) -> dict[int, torch.Tensor]:
    """Join the parts of each output that is read."""
    joined = {}
    for k, value in enumerate(local.operator.outputs):
        if value is None:
            continue
        parts = [r if isinstance(r, torch.Tensor) else r[k] for r in results]  # type: ignore
        dim = split.dims[value]
        joined[value] = parts[0] if dim is None else torch.cat(parts, dim)
    return joined


def rounding_limit(dtype: torch.dtype) -> float:
    """Return the difference that rounding explains, in units of an output's spread."""
    return TOLERANCE.get(dtype, _OTHERS)


def computed_in(graph: OperatorGraph) -> torch.dtype | None:
    """Return the narrowest floating point dtype among the values of a graph."""
    found = {v.dtype for v in graph.values if v.dtype.is_floating_point}
    return max(found, key=lambda dtype: torch.finfo(dtype).eps, default=None)


def output_error(name: str, given: torch.Tensor, expected: torch.Tensor,
                 computed: torch.dtype | None = None) -> OutputError:
    """Compare an output; equal infinities and two NaN count as equal."""
    dtype = expected.dtype
    given, expected = in_reals(given), in_reals(expected)
    exact = expected.double()
    difference = (given.double() - exact).abs()
    same = (given == expected) | (given.isnan() & expected.isnan())
    difference = difference.masked_fill(same, 0.0).nan_to_num(nan=float('inf'))
    spread = _spread(exact[exact.isfinite()])
    absolute = difference.max().item() if difference.numel() else 0.0
    return OutputError(name, dtype, absolute, spread, computed)


def in_reals(tensor: torch.Tensor) -> torch.Tensor:
    """Return a complex tensor as real and imaginary parts, another one as it is."""
    return torch.view_as_real(tensor.resolve_conj()) if tensor.is_complex() else tensor


def _spread(finite: torch.Tensor) -> float:
    if finite.numel() < 2:
        return finite.abs().sum().item()
    return (finite.max() - finite.min()).item()
