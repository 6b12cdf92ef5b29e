# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""
Measures what each layer costs in training on this machine, by batch and direction.

Layers are callables on tuples of tensors, with the parameters that they use; what each gets is
what the one before it returned.  Batches double until memory ends.  What a layer keeps is what
autograd saved for its backward pass, parameters and what was counted before left out.
"""
from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
import time

import torch

from intradp_ros.core.measured_once import measured_once, measured_path
from intradp_ros.core.processes import out_of_memory
from intradp_ros.graph.tensor_bits import memory_address
from intradp_ros.systems.training.layers.layer_table import LayerTable, LayerTimes, TableError

Tensors = tuple[torch.Tensor, ...]
Parameters = Sequence[tuple[str, torch.nn.Parameter]]
#: Times that each pass runs; the shortest counts.
REPEATS = 3
#: What part of a sample's seconds a doubling of the batch must save to be doubled again.
SAVES = 0.03


@dataclass(frozen=True)
class LayerCall:
    """
    A layer that can be run: from the values at its first border to those at its last.

    `statistics_bytes` are those of a grain's means and variances.
    """

    name: str
    call: Callable[[Tensors], Tensors]
    parameters: Parameters = ()
    statistics_bytes: float = 0.0


def measure_layers(device: str, layers: Sequence[LayerCall], inputs: Callable[[int], Tensors],
                   optimiser: Callable[[Parameters], torch.optim.Optimizer],
                   most: int = 256, memory_bytes: float = float('inf'), repeats: int = REPEATS,
                   enough: int = 0) -> LayerTable:
    """
    Return the table of layers on this machine, which plans name `device`.

    `inputs` makes what enters the first layer for so many samples.  Batches are 1, 2, 4, up to
    `most`; from `enough` on (0: never) only as long as more of them save time.  They end where the
    bytes of a round of one micro-batch exceed `memory_bytes`, or where torch finds no more memory.

    :raises TableError: if there is no layer, or not even one sample fits.
    """
    if not layers or most < 1 or repeats < 1:
        raise TableError('measure one layer or more, with one sample or more, once or more')
    weights = [_bytes([p for _, p in layer.parameters]) for layer in layers]
    rows: list[_Row] = []
    batches: list[int] = []
    states: list[float] = []
    step: list[float] = []
    batch = 1
    while batch <= most:
        held = 2 * sum(weights) + sum(states)
        if rows and held + 2 * sum(rows[-1].kept) > memory_bytes:
            break
        try:
            row = _measure(layers, inputs(batch), repeats)
            if not states:
                states, step = _measure_steps(layers, optimiser, repeats)
        except (MemoryError, RuntimeError) as error:
            if not out_of_memory(error):
                raise
            break
        if 2 * sum(weights) + sum(states) + sum(row.kept) > memory_bytes:
            break
        rows.append(row)
        batches.append(batch)
        if 0 < enough <= batch and len(rows) > 1 and \
                rows[-1].seconds > (1 - SAVES) * 2 * rows[-2].seconds:
            break
        batch *= 2
    if not rows:
        raise TableError('not even one sample can be trained here: memory does not suffice')
    last, largest = rows[-1], batches[-1]
    times = LayerTimes(tuple(batches), tuple(tuple(row.forward) for row in rows),
                       tuple(tuple(row.backward) for row in rows), tuple(step))
    return LayerTable(tuple(layer.name for layer in layers),
                      tuple(nbytes / largest for nbytes in last.kept), tuple(weights),
                      tuple(states), tuple(nbytes / largest for nbytes in last.borders),
                      tuple(nbytes / largest for nbytes in last.gradients), {device: times},
                      tuple(layer.statistics_bytes for layer in layers))


def joined(tables: Sequence[LayerTable]) -> LayerTable:
    """
    Return one table of tables that were measured on several devices.

    Bytes are the first one's.

    :raises TableError: if there is none, or they are not of the same layers.
    """
    if not tables or any(table.layers != tables[0].layers for table in tables):
        raise TableError('tables of the same layers can be joined, and there must be one')
    return replace(tables[0], times={name: times for table in tables
                                     for name, times in table.times.items()})


def cached_table(digest: str, device: str, measure: Callable[[], LayerTable],
                 folder: Path | None = None) -> LayerTable:
    """Return the table of a network (by digest) on a device, measuring it only the first time."""
    path = measured_path('layers', digest, device, packages=('systems/training',), folder=folder)
    return measured_once(path, measure, LayerTable.from_json, LayerTable.to_json)


@dataclass
class _Row:
    """Seconds and bytes of one batch; borders one more than layers."""

    forward: list[float]
    backward: list[float]
    kept: list[float]
    borders: list[float]
    gradients: list[float]

    @property
    def seconds(self) -> float:
        """Seconds of both passes of all layers."""
        return sum(self.forward) + sum(self.backward)


def _measure(layers: Sequence[LayerCall], values: Tensors, repeats: int) -> _Row:
    row = _Row([], [], [], [float(_bytes(values))], [0.0])
    for layer in layers:
        forward, backward = [], []
        for _ in range(repeats):
            given = tuple(v.detach().requires_grad_(v.is_floating_point()) for v in values)
            saved: dict[int, int] = {}
            own = {memory_address(p) for _, p in layer.parameters}

            def pack(x: torch.Tensor, saved: dict[int, int] = saved,
                     own: set[int] = own) -> torch.Tensor:
                if (place := memory_address(x)) not in own:
                    saved[place] = x.untyped_storage().nbytes()
                return x

            begun = _now(given)
            with torch.autograd.graph.saved_tensors_hooks(pack, lambda x: x):
                made = layer.call(given)
            forward.append(_now(made) - begun)
            ends = [value for value in made if value.requires_grad]
            begun = _now(made)
            if ends:
                torch.autograd.backward(ends, [torch.ones_like(value) for value in ends])
            backward.append(_now(made) - begun)
            for place in {memory_address(value) for value in given}:
                saved.pop(place, None)  # what enters a stage is counted with its border
        inner = row.borders[-1] if row.kept else 0.0
        row.forward.append(min(forward))
        row.backward.append(min(backward))
        row.kept.append(float(sum(saved.values())) + inner)
        row.borders.append(float(_bytes(made)))
        row.gradients.append(float(_bytes(ends)))
        for _, parameter in layer.parameters:
            parameter.grad = None
        values = tuple(value.detach() for value in made)
    return row


def _now(values: Sequence[torch.Tensor]) -> float:
    if values and values[0].is_cuda:
        torch.cuda.synchronize(values[0].device)
    return time.perf_counter()


def _bytes(values: Sequence[torch.Tensor]) -> int:
    return sum(value.numel() * value.element_size() for value in values)


def _measure_steps(layers: Sequence[LayerCall],
                   optimiser: Callable[[Parameters], torch.optim.Optimizer], repeats: int,
                   ) -> tuple[list[float], list[float]]:
    """
    Return the bytes that an optimiser keeps of each layer, and the seconds of its step.

    All layers are stepped at once, and the seconds divided as layers one by one would take.
    """
    found = [_step(layer.parameters, optimiser, repeats) for layer in layers]
    whole = _step([one for layer in layers for one in layer.parameters], optimiser, repeats)[1]
    part = whole / max(sum(seconds for _, seconds in found), 1e-12)
    return [nbytes for nbytes, _ in found], [seconds * part for _, seconds in found]


def _step(parameters: Parameters, optimiser: Callable[[Parameters], torch.optim.Optimizer],
          repeats: int) -> tuple[float, float]:
    """Step copies of parameters; return the bytes that the optimiser keeps, and the seconds."""
    copies = [(name, torch.nn.Parameter(p.detach().clone(), p.requires_grad))
              for name, p in parameters]
    if not copies:
        return 0.0, 0.0
    stepped, seconds = optimiser(copies), []
    for _, parameter in copies:
        parameter.grad = torch.zeros_like(parameter)
    for _ in range(1 + repeats):
        begun = _now([p for _, p in copies])
        stepped.step()
        seconds.append(_now([p for _, p in copies]) - begun)
    nbytes = float(sum(_bytes([v for v in state.values() if isinstance(v, torch.Tensor)])
                       for state in stepped.state.values()))
    return nbytes, min(seconds[1:])
