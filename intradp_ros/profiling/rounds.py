# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""Running a graph whole as an inference does, operator by operator, with a clock."""
from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
import time
from typing import Any

import torch

from intradp_ros.split.in_place import in_place, overwritable
from intradp_ros.split.kernel_device import KernelDevice
from intradp_ros.split.local_operator import Kernel, LocalOperator, SplitGraph
from intradp_ros.split.regions.region import Region

Values = dict[int, torch.Tensor]


@dataclass(frozen=True)
class BoundOperator:
    """
    An operator ready to run whole.

    `free` are the values that nobody reads after it; `overwrites` says
    that it writes over its first input, as it does in an inference.  `partly`
    names inputs of which even all of its rows need some rows only (what a
    crop leaves): position, dimension and rows.
    """

    local: LocalOperator
    kernel: Kernel
    free: tuple[int, ...]
    overwrites: bool
    partly: tuple[tuple[int, int, Region], ...] = ()

    def inputs(self, values: Values) -> list[torch.Tensor]:
        """Return the tensors it reads, no rows among them that its kernel is not made for."""
        tensors = [values[v] for v in self.local.operator.inputs]
        for k, dim, need in self.partly:
            tensors[k] = tensors[k].narrow(dim, need.start, need.rows)
        return tensors

    def finish(self, result: Any, values: Values) -> None:
        """Store its results, and let go of what nobody reads any more."""
        results = (result,) if isinstance(result, torch.Tensor) else result
        outputs = self.local.operator.outputs
        values.update({v: t for v, t in zip(outputs, results) if v is not None})
        for v in self.free:
            values.pop(v, None)


def clock(device: KernelDevice) -> Callable[[], float]:
    """
    Return the clock to time kernels of a device with, in seconds.

    With one thread it stands still while another process has the processor;
    an accelerator is waited for.
    """
    if device.runs_ahead:
        return partial(_when_done, device)
    return time.thread_time if torch.get_num_threads() == 1 else time.perf_counter


def _when_done(device: KernelDevice) -> float:
    device.finish()
    return time.perf_counter()


def bind(split: SplitGraph, op: LocalOperator, region: Region, overwrites: bool) -> Kernel:
    """Bind an operator to a region; it may write over its first input."""
    parameters = split.graph.parameters
    return in_place(op, region, parameters) if overwrites else op.bind(region, parameters)


def bind_whole(split: SplitGraph) -> tuple[BoundOperator, ...]:
    """Bind all operators to all of their rows."""
    kept = set(split.graph.output_values)
    last = {v: readers[-1] for v, readers in split.graph.consumers.items()
            if readers and v not in kept}
    may = overwritable(split)
    bound = []
    for op in split.operators:
        inputs = op.operator.inputs
        free = tuple({v for v in inputs if last.get(v) == op.operator.id})
        overwrites = op.operator.id in may and inputs[0] in free
        kernel = bind(split, op, Region(0, op.rows), overwrites)
        bound.append(BoundOperator(op, kernel, free, overwrites, tuple(_partly(split, op))))
    return tuple(bound)


def _partly(split: SplitGraph, op: LocalOperator) -> Iterator[tuple[int, int, Region]]:
    for k, (value, row_map) in enumerate(zip(op.operator.inputs, op.maps)):
        dim, need = split.dims[value], row_map(Region(0, op.rows))
        if dim is not None and value not in split.folded and need \
                and need != split.whole(value):
            yield k, dim, need


def whole_kernel(split: SplitGraph, bound: Sequence[BoundOperator]) -> Kernel:
    """Return all operators as one kernel, which takes a graph's inputs and returns its outputs."""
    def through(tensors: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        values = dict(zip(split.graph.inputs, tensors))
        for op in bound:
            op.finish(op.kernel(op.inputs(values)), values)
        return [values[v] for v in split.graph.output_values]

    return through


def replayed_run(split: SplitGraph, bound: Sequence[BoundOperator],
                 inputs: Sequence[torch.Tensor]) -> Callable[[], float]:
    """
    Return what runs all operators as an inference does, replayed if a device does that faster.

    It returns the seconds of all; call both in `torch.inference_mode`.
    """
    taken, whole = list(map(split.device.take, inputs)), whole_kernel(split, bound)
    return partial(_timed, split.device, split.device.replayed(whole, taken) or whole, taken)


def run_through(split: SplitGraph, bound: Sequence[BoundOperator],
                inputs: Sequence[torch.Tensor]) -> float:
    """Run all operators without waiting for any in between; return the seconds of all."""
    taken = list(map(split.device.take, inputs))
    return _timed(split.device, whole_kernel(split, bound), taken)


def _timed(device: KernelDevice, kernel: Kernel, taken: Sequence[torch.Tensor]) -> float:
    now = clock(device)
    start = now()
    kernel(taken)
    return now() - start


def given(split: SplitGraph, inputs: Sequence[torch.Tensor]) -> Values:
    """Return the values that a graph begins with, where its kernels read them."""
    return dict(zip(split.graph.inputs, map(split.device.take, inputs)))


def run_timed(split: SplitGraph, bound: Sequence[BoundOperator], inputs: Sequence[torch.Tensor],
              ) -> tuple[Values, list[float]]:
    """Run all operators once; return the graph's output values, and the seconds of each one."""
    values, now = given(split, inputs), clock(split.device)
    seconds = []
    for op in bound:
        tensors = op.inputs(values)
        start = now()
        result = op.kernel(tensors)
        seconds.append(now() - start)
        op.finish(result, values)
    return {v: values[v] for v in split.graph.output_values}, seconds
