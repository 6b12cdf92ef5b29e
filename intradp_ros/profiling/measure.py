# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""Timing every operator at several region heights on this machine's own hardware."""
from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
import time
from typing import Any

import torch

from intradp_ros.graph.operator_graph import Operator
from intradp_ros.graph.serialise import digest
from intradp_ros.operators.local_operator import Kernel, LocalOperator, Parameters, SplitGraph
from intradp_ros.operators.region import Region
from intradp_ros.profiling.device import device_name
from intradp_ros.profiling.encodings import measure_encodings
from intradp_ros.profiling.profile import EncodingTiming, OperatorTiming, Profile

HEIGHTS = (1.0, 0.5, 0.25, 0.125, 0.0625)
Progress = Callable[[int, int], None]


def measure_profile(split: SplitGraph, inputs: Sequence[torch.Tensor], *,
                    budget: float = 0.03, progress: Progress | None = None) -> Profile:
    """
    Measure all operators of a graph on example inputs.

    Parameters
    ----------
    split, inputs :
        The graph with its split axis; one example tensor for each input.
    budget :
        Seconds spent on each operator and height beyond three runs.
    progress :
        Called with operators done and operators in all.

    """
    timings: list[OperatorTiming] = []
    with torch.inference_mode():
        for op, tensors in _walk(split, inputs):
            timings.append(_timing(op, tensors, split, budget))
            if progress:
                progress(len(timings), len(split.operators))
        whole = _seconds_of_graph(split, inputs)
        encodings = _encodings(split, inputs)
    total = sum(timing.seconds[-1] for timing in timings)
    return Profile(digest(split.captured), split.axis, device_name(), torch.get_num_threads(),
                   tuple(timings), whole, whole / total if total > 0 else 1.0,
                   encodings=encodings)


def _encodings(split: SplitGraph, inputs: Sequence[torch.Tensor],
               ) -> tuple[dict[str, EncodingTiming], ...]:
    """Return for each value what encodings do to it; nothing for records of folded ones."""
    found: list[dict[str, EncodingTiming]] = [{} for _ in split.rows]
    values = dict(zip(split.graph.inputs, inputs))

    def look(new: Iterable[int | None]) -> None:
        for v in new:
            if v is not None and v not in split.folded:
                found[v] = measure_encodings(values[v])

    look(split.graph.inputs)
    for op in split.operators:
        _run_whole(op, split.graph.parameters, values)
        look(op.operator.outputs)
        _free(split, op, values)
    return tuple(found)


def _walk(split: SplitGraph, inputs: Sequence[torch.Tensor],
          ) -> Iterator[tuple[LocalOperator, list[torch.Tensor]]]:
    """Yield every operator with its whole inputs; run it; free values after their last use."""
    values: dict[int, torch.Tensor] = dict(zip(split.graph.inputs, inputs))
    for op in split.operators:
        tensors = [values[v] for v in op.operator.inputs]
        yield op, tensors
        _run_whole(op, split.graph.parameters, values)
        _free(split, op, values)


def _free(split: SplitGraph, op: LocalOperator, values: dict[int, torch.Tensor]) -> None:
    """Let go of values that no later operator reads."""
    for v in op.operator.inputs:
        if split.graph.consumers[v][-1] == op.operator.id:
            values.pop(v, None)


def _run_whole(op: LocalOperator, parameters: Parameters, values: dict[int, torch.Tensor]) -> None:
    kernel = op.bind(Region(0, op.rows), parameters)
    _store(op.operator, kernel([values[v] for v in op.operator.inputs]), values)


def _store(operator: Operator, result: Any, values: dict[int, torch.Tensor]) -> None:
    results = (result,) if isinstance(result, torch.Tensor) else result
    values.update({v: t for v, t in zip(operator.outputs, results) if v is not None})


def _timing(op: LocalOperator, tensors: Sequence[torch.Tensor], split: SplitGraph,
            budget: float) -> OperatorTiming:
    rows = sorted({max(1, round(op.rows * height)) for height in HEIGHTS})
    return OperatorTiming(tuple(rows), tuple(
        _seconds(*_prepared(op, tensors, split, count), budget) for count in rows))


def _prepared(op: LocalOperator, tensors: Sequence[torch.Tensor], split: SplitGraph, count: int,
              ) -> tuple[Kernel, list[torch.Tensor]]:
    """Bind the operator to `count` rows in the middle, with the inputs they need."""
    start = (op.rows - count) // 2
    region = Region(start, start + count)
    cut = []
    for value, rowmap, tensor in zip(op.operator.inputs, op.maps, tensors):
        cut.append(split.cut(value, tensor, rowmap(region)))
    return op.bind(region, split.graph.parameters), cut


def _seconds(kernel: Kernel, tensors: list[torch.Tensor], budget: float) -> float:
    """Return the fastest of at least three runs: interference only ever adds."""
    kernel(tensors)
    times: list[float] = []
    while len(times) < 3 or (sum(times) < budget and len(times) < 30):
        start = time.perf_counter()
        kernel(tensors)
        times.append(time.perf_counter() - start)
    return min(times)


def _seconds_of_graph(split: SplitGraph, inputs: Sequence[torch.Tensor], runs: int = 5) -> float:
    kernels = [(op, op.bind(Region(0, op.rows), split.graph.parameters)) for op in split.operators]
    last = {v: ops[-1] for v, ops in split.graph.consumers.items() if ops}
    times = []
    for _ in range(runs + 1):
        start = time.perf_counter()
        _run_kernels(kernels, last, dict(zip(split.graph.inputs, inputs)))
        times.append(time.perf_counter() - start)
    return min(times[1:])


def _run_kernels(kernels: Sequence[tuple[LocalOperator, Kernel]], last: Mapping[int, int],
                 values: dict[int, torch.Tensor]) -> None:
    for op, kernel in kernels:
        inputs = op.operator.inputs
        _store(op.operator, kernel([values[v] for v in inputs]), values)
        for v in inputs:
            if last[v] == op.operator.id:
                values.pop(v, None)
