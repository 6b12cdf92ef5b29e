# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""Graphs of one operator, made by hand, and the checks that every locality rule must pass."""
from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
import random
from typing import Any

import imagined_accelerator
import torch

from intradp_ros.graph.operator_graph import (
    Operator,
    OperatorGraph,
    ParameterRef,
    resolve_target,
    Value,
    ValueRef,
)
from intradp_ros.graph.reference_evaluation import run_graph
from intradp_ros.split.calls.accelerator import Accelerator
from intradp_ros.split.checks.verify import run_part, verify
from intradp_ros.split.local_operator import Kind, LocalOperator, SplitGraph
from intradp_ros.split.on_device import split_for
from intradp_ros.split.regions.region import Region
from intradp_ros.split.split_graph import split_graph


@dataclass(frozen=True)
class Parameter:
    """Marks a tensor among the arguments as a parameter; other tensors are inputs."""

    tensor: torch.Tensor


class Single:
    """A graph whose only operator is called with `args` and `kwargs`, and its inputs."""

    def __init__(self, target: str, *args: Any, read: Sequence[int] = (0,), **kwargs: Any) -> None:
        self.values: list[Value] = []
        self.inputs: list[torch.Tensor] = []
        self.parameters: dict[str, torch.Tensor] = {}
        templates, named = self._template(args), self._template(kwargs)
        results = self._call(target, args, kwargs)
        outputs = tuple(
            self._value(result) if k in read else None for k, result in enumerate(results))
        operator = Operator(0, 'operator', f'aten.{target}', tuple(templates), named, outputs)
        self.graph = OperatorGraph(
            'single', tuple(self.values), (operator,), tuple(range(len(self.inputs))),
            tuple(ValueRef(v) for v in outputs if v is not None), '', self.parameters)

    def split(self, axis: int | None = None) -> SplitGraph:
        return split_graph(self.graph, axis)

    def _value(self, tensor: torch.Tensor) -> int:
        self.values.append(
            Value(len(self.values), f'v{len(self.values)}', tuple(tensor.shape), tensor.dtype))
        return len(self.values) - 1

    def _template(self, item: Any) -> Any:
        if isinstance(item, Parameter):
            name = f'p{len(self.parameters)}'
            self.parameters[name] = item.tensor
            return ParameterRef(name)
        if isinstance(item, torch.Tensor):
            known = [v for v, x in enumerate(self.inputs) if x is item]
            if not known:
                self.inputs.append(item)
                known = [self._value(item)]
            return ValueRef(known[0])
        if isinstance(item, (list, tuple)):
            return [self._template(part) for part in item]
        if isinstance(item, dict):
            return {key: self._template(part) for key, part in item.items()}
        return item

    @staticmethod
    def _call(target: str, args: Any, kwargs: Any) -> Sequence[torch.Tensor]:
        def plain(item: Any) -> Any:
            if isinstance(item, Parameter):
                return item.tensor
            return [plain(part) for part in item] if isinstance(item, (list, tuple)) else item

        result = resolve_target(f'aten.{target}')(
            *[plain(arg) for arg in args], **{k: plain(v) for k, v in kwargs.items()})
        return (result,) if isinstance(result, torch.Tensor) else result


def check_local(
        single: Single, axis: int, seed: int = 0, tolerance: float = 1e-9) -> LocalOperator:
    """Assert that the operator is local along `axis`, and exact on random regions."""
    split = single.split(axis)
    local = split.operators[0]
    assert local.kind is not Kind.GLOBAL, 'operator is global'
    assert local.rows > 1
    check_regions(single, split, random_regions(local.rows, seed), tolerance)
    return local


def check_global(single: Single, axis: int) -> None:
    """Assert that the operator is global along `axis`, and runs as a whole."""
    split = single.split(axis)
    local = split.operators[0]
    assert local.kind is Kind.GLOBAL
    assert local.rows == 1
    assert all(split.dims[v] is None for v in local.operator.outputs if v is not None)
    assert all(
        row_map(Region(0, 1)) == Region(0, split.rows[v])
        for v, row_map in zip(local.operator.inputs, local.maps))
    check_regions(single, split, [Region(0, 1)], 0.0)


def check_yields_rows(
        single: Single, axis: int, seed: int = 0, tolerance: float = 1e-9) -> LocalOperator:
    """Assert that the operator needs its whole input along `axis`, and yields any rows exactly."""
    split = single.split(axis)
    local = split.operators[0]
    assert local.kind is Kind.GLOBAL
    assert local.rows > 1
    assert all(
        row_map(Region(0, 1)) == split.whole(v)
        for v, row_map in zip(local.operator.inputs, local.maps))
    check_regions(single, split, random_regions(local.rows, seed), tolerance)
    return local


def check_folded(single: Single, axis: int, tolerance: float = 1e-9) -> SplitGraph:
    """Assert that records of 2 to 5 parts along `axis`, and of one, give the result."""
    split = single.split(axis)
    assert split.folded, 'operator is not taken apart'
    whole = run_graph(split.graph, single.inputs)
    for given, expected in zip(whole, run_graph(single.graph, single.inputs)):
        torch.testing.assert_close(given, expected, rtol=0.0, atol=tolerance, equal_nan=True)
    for parts in range(2, 6):
        report = verify(split, single.inputs, parts, seed=parts)
        assert all(error.absolute <= tolerance for error in report.outputs), report.worst
    return split


def check_regions(
        single: Single, split: SplitGraph, regions: Iterable[Region], tolerance: float) -> None:
    """
    Compare regions with the whole result; rows that were not asked for hold NaN.

    The last region also runs on an accelerator, where PyTorch can have the imagined one.
    """
    local = split.operators[0]
    expected = run_graph(single.graph, single.inputs)
    values = [v for v in local.operator.outputs if v is not None]
    regions = list(regions)
    runs = [(region, split) for region in regions]
    if imagined_accelerator.IS_THERE:
        elsewhere = Accelerator(imagined_accelerator.NAME)
        runs.append((regions[-1], split_for(single.graph, split.axis, elsewhere)))
    for region, there in runs:
        needs = _needs(split, local, region)
        given = {v: there.device.take(_poisoned(x, split.dims[v], needs[v]))
                 for v, x in enumerate(single.inputs)}
        with torch.inference_mode():  # as in an inference
            result: Any = run_part(there, there.operators[0], region, given)
        results = [result] if isinstance(result, torch.Tensor) else [
            item for item, v in zip(result, local.operator.outputs) if v is not None]
        for value, part, whole in zip(values, results, expected):
            dim = split.dims[value]
            rows = whole if dim is None else whole.narrow(dim, region.start, region.rows)
            assert part.device.type == there.device.name.partition(':')[0]
            torch.testing.assert_close(there.device.give(part), rows, rtol=0.0, atol=tolerance,
                                       equal_nan=True)


def random_regions(rows: int, seed: int) -> Iterator[Region]:
    """Yield the whole, both ends, and some regions in between, down to one row."""
    source = random.Random(seed)
    yield Region(0, rows)
    yield Region(0, 1)
    yield Region(rows - 1, rows)
    for _ in range(5):
        start, stop = sorted(source.sample(range(rows + 1), 2))
        yield Region(start, stop)


def _needs(split: SplitGraph, local: LocalOperator, region: Region) -> dict[int, Region]:
    needs: dict[int, Region] = {v: Region(0, 0) for v in split.graph.inputs}
    for value, row_map in zip(local.operator.inputs, local.maps):
        needs[value] = needs[value].hull(row_map(region))
    return needs


def _poisoned(tensor: torch.Tensor, dim: int | None, need: Region) -> torch.Tensor:
    """Return a copy with NaN (the lowest number, for integers) in all rows but the needed ones."""
    if dim is None:
        return tensor
    if tensor.dtype == torch.bool:
        return tensor
    bad = float('nan') if tensor.is_floating_point() else torch.iinfo(tensor.dtype).min
    poisoned = torch.full_like(tensor, bad)
    poisoned.narrow(dim, need.start, need.rows).copy_(
        tensor.narrow(dim, need.start, need.rows))
    return poisoned


def rows_that_count(single: Single, region: Region, axis: int, least: float = 0.0) -> Region:
    """
    Return the rows of the first input that a region of an affine operator depends on.

    A row counts if ones in it, and zeros elsewhere, change the region by more than `least`.
    """
    split = single.split(axis)
    (value,) = split.graph.output_values

    def part(x: torch.Tensor) -> torch.Tensor:
        (result,) = run_graph(single.graph, [x, *single.inputs[1:]])
        return result.narrow(split.dims[value], region.start, region.rows)

    zeros = torch.zeros_like(single.inputs[0])
    base = part(zeros)
    units = (
        zeros.index_fill(axis, torch.tensor([row]), 1.0) for row in range(split.rows[0]))
    rows = [row for row, x in enumerate(units) if ((part(x) - base).abs() > least).any()]
    return Region(rows[0], rows[-1] + 1) if rows else Region(0, 0)
