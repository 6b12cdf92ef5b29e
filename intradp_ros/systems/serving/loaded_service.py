# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""A service's model, ready to run in batches on a device of this process."""
from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
import inspect
from pathlib import Path
import time
from typing import Any

import torch

from intradp_ros.graph.batch_ladder import (
    BatchLadder,
    capture_ladder,
    checked,
    load_ladder,
    random_row,
)
from intradp_ros.graph.graph_errors import GraphFormatError
from intradp_ros.graph.operator_graph import OperatorGraph, ParameterRef, ValueRef
from intradp_ros.graph.trees import rebuild_outputs
from intradp_ros.profiling.rounds import bind_whole, whole_kernel
from intradp_ros.runtime.models.catalogue import ModelSpec, ModelSpecError
from intradp_ros.runtime.models.model import AS_GRAPH
from intradp_ros.runtime.requests.infer_requests import DTYPES
from intradp_ros.split.kernel_device import KernelDevice
from intradp_ros.split.mixed_rows import mixed_rows
from intradp_ros.split.on_device import split_for
from intradp_ros.systems.serving.service import TensorSpec
from intradp_ros.systems.serving.service_table import measured

#: Runs by which a batch is measured, and the seconds after which there are enough.
RUNS, ENOUGH = 7, 1.0
Kernel = Callable[[Sequence[torch.Tensor]], Sequence[torch.Tensor]]


@dataclass
class LoadedService:
    """
    Programs by the rows of a batch.

    `inputs` and `outputs` say what one row is; `rows` whether several can go together at all,
    `why` why no more do.  `seconds` and `spread` are measured, by the sizes of batches.
    """

    ladder: BatchLadder
    device: KernelDevice
    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    programs: Mapping[int, Kernel]
    seconds: dict[int, float] = field(default_factory=dict)
    spread: dict[int, float] = field(default_factory=dict)
    _kept: dict[int, list[torch.Tensor]] = field(default_factory=dict)

    @property
    def sizes(self) -> tuple[int, ...]:
        """Return the sizes of batches that there are programs for."""
        return tuple(sorted(self.ladder.graphs))

    def run(self, stacked: Sequence[torch.Tensor], rows: int) -> list[torch.Tensor]:
        """
        Compute rows that are stacked along a first dimension; return the outputs' rows.

        They are padded with the last one to the next size that there is a program for.
        """
        size = next(b for b in self.sizes if b >= rows)
        kept = self._kept.get(size)
        if kept is None:
            kept = self._kept[size] = [
                torch.empty(graph.values[v].shape, dtype=graph.values[v].dtype)
                for graph in (self.ladder.graphs[size],) for v in graph.inputs]
        for tensor, given in zip(kept, stacked):
            if self.ladder.rows:
                tensor[:rows] = given
                tensor[rows:] = given[rows - 1]
            else:
                tensor.copy_(given[0])
        outputs = self.programs[size](kept)
        return [out[:rows] if self.ladder.rows else out[None] for out in outputs]

    def example(self, size: int) -> list[torch.Tensor]:
        """Return rows that can be computed, stacked."""
        row = random_row(self.ladder.one, 0)
        return [torch.cat([t] * size) if self.ladder.rows else t[None] for t in row]

    def measure(self) -> None:
        """Measure all sizes of batches, after a run that warms them."""
        for size in self.sizes:
            stacked = self.example(size)
            self.run(stacked, size)
            times: list[float] = []
            end = time.monotonic() + ENOUGH
            while len(times) < RUNS and (len(times) < 2 or time.monotonic() < end):
                start = time.perf_counter()
                self.run(stacked, size)
                times.append(time.perf_counter() - start)
            self.seconds[size], self.spread[size] = measured(times)


def load_service(model: str, sizes: Sequence[int], device: KernelDevice,
                 inputs: Sequence[TensorSpec] = ()) -> LoadedService:
    """
    Load a model: its factory or archive (as `ModelSpec`), in batches of the given sizes.

    A factory without a shape gets a row of `inputs`: by their names if its `forward` has them all,
    else in their order.  Larger batches than 1 are kept if their graphs show that each row of the
    outputs follows from one row of the inputs, and it equals the row alone as computed here.

    :raises ModelSpecError, CaptureError, GraphFormatError: if there is no such model, or it cannot
        be captured or read.
    """
    spec = ModelSpec.parse(model) if not Path(model).is_file() else ModelSpec(model)
    if not (spec.is_archive or spec.shape or inputs):
        raise ModelSpecError(f'{model}: write the shape of its input behind it, as in '
                             f'"{model} 1x3x224x224 uint8", or name its inputs under "inputs"')
    if spec.is_archive:
        try:
            ladder = load_ladder(spec.source)
        except OSError as error:
            raise ModelSpecError(f'cannot read the archive {spec.source}: {error}') from error
        except GraphFormatError as error:
            raise GraphFormatError(f'{error}; of a model in another file make one (intradp model '
                                   'add), or name a factory that loads it') from error
        ladder = BatchLadder({b: g for b, g in ladder.graphs.items() if b == 1 or b in sizes},
                             ladder.rows, ladder.why)
    else:
        module, taken = spec.module(), () if spec.shape else inputs
        names = [each.name for each in taken]
        ladder = capture_ladder(module, [
            ModelSpec('', (1, *each.shape), getattr(torch, each.dtype)).example()
            for each in taken] or [spec.example()], sizes, AS_GRAPH,
            names if set(names) <= set(_arguments(module)) else ())
    for b, graph in sorted(ladder.graphs.items()):
        if b > 1 and (why := mixed_rows(graph)):
            ladder = ladder.up_to(max(k for k in ladder.graphs if k < b), why)
            break
    if not ladder.one.operators:
        raise ModelSpecError(f'{model} computes nothing')
    programs = {b: program(graph, device) for b, graph in ladder.graphs.items()}
    ladder = checked(ladder, programs)
    return LoadedService(
        ladder, device,
        _specs(((ladder.one.values[v].name, v) for v in ladder.one.inputs), ladder),
        _specs(_output_names(ladder.one), ladder),
        {b: programs[b] for b in ladder.graphs})


def _arguments(module: torch.nn.Module) -> Sequence[str]:
    try:
        return list(inspect.signature(module.forward).parameters)
    except ValueError:  # code of TorchScript has none
        return ()


def program(graph: OperatorGraph, device: KernelDevice) -> Kernel:
    """Return what computes a whole graph on a device: its inputs to its outputs, on the host."""
    split = split_for(graph, None, device)
    whole: Kernel = whole_kernel(split, bind_whole(split))
    places = [split.graph.output_values.index(o.value) if isinstance(o, ValueRef) else o
              for o in split.graph.outputs]
    replayed: list[Kernel | None] = []

    def run(inputs: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        with torch.inference_mode():
            taken = [device.take(tensor) for tensor in inputs]
            if not replayed:
                replayed.append(device.replayed(whole, taken))
            values = (replayed[0] or whole)(taken)
            return [device.give(values[place] if isinstance(place, int) else
                                split.graph.parameters[place.name]).contiguous()
                    for place in places]
    return run


def _specs(named: Any, ladder: BatchLadder) -> tuple[TensorSpec, ...]:
    found = []
    for name, v in named:
        value = ladder.one.values[v]
        dtype = str(value.dtype).removeprefix('torch.')
        if dtype not in DTYPES:
            raise ModelSpecError(f'tensor {name!r} is of {dtype}, which is not served: served '
                                 f'are {", ".join(DTYPES)}')
        shape = value.shape[1:] if ladder.rows else value.shape
        found.append(TensorSpec(name, dtype, tuple(shape)))
    return tuple(found)


def _output_names(graph: OperatorGraph) -> list[tuple[str, int]]:
    """Return outputs with the keys by which the model returns them, or else their number."""
    marks = [o.value if isinstance(o, ValueRef) else None for o in graph.outputs]
    if any(isinstance(o, ParameterRef) or not isinstance(o, ValueRef) for o in graph.outputs):
        raise ModelSpecError(f'{graph.name} returns a constant, which is not served')
    names: list[str] = []
    _walk(rebuild_outputs(graph, list(range(len(marks)))), '', names)
    unique = [name if name and names.count(name) == 1 else f'output_{k}'
              for k, name in enumerate(names)]
    return [(name, v) for name, v in zip(unique, marks) if v is not None]


def _walk(tree: Any, name: str, names: list[str]) -> None:
    """Append the path to each leaf of a nested result, in the order in which it is flattened."""
    if isinstance(tree, Mapping):
        for key, part in tree.items():
            _walk(part, f'{name}.{key}' if name else str(key), names)
    elif hasattr(tree, '_fields'):
        for key, part in zip(tree._fields, tree):
            _walk(part, f'{name}.{key}' if name else key, names)
    elif isinstance(tree, (list, tuple)):
        for k, part in enumerate(tree):
            _walk(part, f'{name}.{k}' if name else '', names)
    else:
        names.append(name)
