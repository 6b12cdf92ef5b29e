# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""
One model captured for batches of several sizes, with the same weights.

A captured graph has fixed shapes, so that a batch of each size needs a graph of its own.  Their
weights are those of the graph for one row wherever these are the same; so the ladder takes little
more memory than one graph.  A size is kept only if each row of a batch equals the row alone:
a model that mixes rows, or that has no dimension of rows, is served row by row.
"""
from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
import os
from pathlib import Path
from typing import Any
import zipfile

from safetensors import SafetensorError
from safetensors.torch import load as load_tensors
from safetensors.torch import save as save_tensors
import torch
from torch import nn

from intradp_ros.blobs.digests import flat_bytes
from intradp_ros.core.atomic_write import replacing
from intradp_ros.graph.capture import capture
from intradp_ros.graph.compare import explained_by_rounding
from intradp_ros.graph.graph_errors import CaptureError, GraphFormatError
from intradp_ros.graph.operator_graph import OperatorGraph, ValueRef
from intradp_ros.graph.reference_evaluation import run_graph
from intradp_ros.graph.serialise import (
    batch_member,
    BATCH_PARAMETERS,
    graph_from_json,
    graph_to_json,
    LARGEST_JSON,
    load_graph,
    member,
    save_graph,
)

SIZES = (1, 2, 4, 8)
Rows = Sequence[torch.Tensor]
#: A graph as something that runs: inputs to the tensors among its outputs.
Run = Callable[[Rows], Sequence[torch.Tensor]]


@dataclass(frozen=True)
class BatchLadder:
    """
    Graphs by the rows of a batch, from 1 on; `why` says why there are no more.

    `rows` says whether the first dimension of inputs and outputs counts rows.
    """

    graphs: Mapping[int, OperatorGraph]
    rows: bool
    why: str = ''

    @property
    def one(self) -> OperatorGraph:
        """Return the graph for one row."""
        return self.graphs[1]

    def up_to(self, most: int, why: str) -> BatchLadder:
        """Return the ladder without larger batches."""
        return replace(self, graphs={b: g for b, g in self.graphs.items() if b <= most}, why=why)


def capture_ladder(model: nn.Module, example: Rows, sizes: Sequence[int] = SIZES,
                   methods: Sequence[str] = ('export', 'trace'), names: Sequence[str] = (),
                   ) -> BatchLadder:
    """
    Capture a model for batches; `example` holds its inputs for one row, by `names` or in order.

    :raises CaptureError: if it cannot be captured for one row.
    """
    def of_rows(inputs: Rows) -> OperatorGraph:
        return capture(model, () if names else tuple(inputs), methods=methods,
                       kwargs=dict(zip(names, inputs)))
    one = of_rows(example)
    ladder = single_rung(one)
    if not ladder.rows:
        return ladder
    graphs, why = {1: one}, ''
    for b in sorted(set(sizes) - {1}):
        try:
            graph = of_rows([torch.cat([tensor] * b) for tensor in example])
        except CaptureError as error:
            why = f'it cannot be captured for {b} rows: {error}'
            break
        if why := _unlike(one, graph, b):
            break
        graphs[b] = with_weights_of(graph, one)
    return checked(BatchLadder(graphs, True, why), {b: as_run(g) for b, g in graphs.items()})


def single_rung(one: OperatorGraph) -> BatchLadder:
    """Return the ladder of a graph that was captured for one row alone."""
    why = _no_rows(one)
    return BatchLadder({1: one}, not why, why or 'it was captured for one row alone: make the '
                       'archive with intradp model add --batches 1,2,4,8')


def as_run(graph: OperatorGraph) -> Run:
    """Return what runs a graph operator by operator."""
    return lambda inputs: [x for x in run_graph(graph, inputs) if isinstance(x, torch.Tensor)]


def checked(ladder: BatchLadder, runs: Mapping[int, Run], seeds: Sequence[int] = (0, 1),
            ) -> BatchLadder:
    """Return the ladder up to the largest batch whose rows all equal the rows alone."""
    for b in sorted(ladder.graphs):
        for seed in seeds if b > 1 else ():
            if not rows_alone(ladder.one, runs[1], runs[b], b, seed):
                most = max(k for k in ladder.graphs if k < b)
                return ladder.up_to(most, f'a row of a batch of {b} differs from the row alone')
    return ladder


def rows_alone(one: OperatorGraph, alone: Run, together: Run, b: int, seed: int) -> bool:
    """Return whether each row of a batch made at random equals the row alone, but for rounding."""
    rows = [random_row(one, 1000 * seed + k) for k in range(b)]
    outputs = together([torch.cat(tensors) for tensors in zip(*rows)])
    return all(explained_by_rounding(list(alone(row)), [out[k:k + 1] for out in outputs])
               for k, row in enumerate(rows))


def random_row(graph: OperatorGraph, seed: int) -> list[torch.Tensor]:
    """Return inputs made at random; whole numbers are small, as indices are."""
    generator = torch.Generator().manual_seed(seed)
    found = []
    for value in (graph.values[v] for v in graph.inputs):
        if value.dtype.is_floating_point or value.dtype.is_complex:
            tensor = torch.randn(value.shape, generator=generator).to(value.dtype)
        elif value.dtype is torch.uint8:
            tensor = torch.randint(0, 256, value.shape, generator=generator).to(value.dtype)
        else:
            tensor = torch.randint(0, 2, value.shape, generator=generator).to(value.dtype)
        found.append(tensor)
    return found


def with_weights_of(graph: OperatorGraph, other: OperatorGraph) -> OperatorGraph:
    """Return a graph with another's parameters in place of its own that are the same."""
    return replace(graph, parameters={
        name: other.parameters[name] if name in other.parameters
        and _same(tensor, other.parameters[name]) else tensor
        for name, tensor in graph.parameters.items()})


def save_ladder(ladder: BatchLadder, path: str | os.PathLike[str], notes: str = '') -> None:
    """
    Write a ladder to one archive: its graph for one row, and what others have of their own.

    :raises GraphFormatError: as `save_graph`.
    """
    with replacing(Path(path)) as part:
        save_graph(ladder.one, part, notes)
        own: dict[str, torch.Tensor] = {}
        with zipfile.ZipFile(part, 'a') as archive:
            for b, graph in sorted(ladder.graphs.items()):
                if b == 1:
                    continue
                archive.writestr(zipfile.ZipInfo(batch_member(b)), graph_to_json(graph).encode())
                own |= {f'{b}/{name}': tensor.detach().cpu().clone(
                    memory_format=torch.contiguous_format)
                    for name, tensor in sorted(graph.parameters.items())
                    if tensor is not ladder.one.parameters.get(name)}
            if len(ladder.graphs) > 1:
                archive.writestr(zipfile.ZipInfo(BATCH_PARAMETERS), save_tensors(own))


def load_ladder(path: str | os.PathLike[str]) -> BatchLadder:
    """
    Read an archive; one of a graph alone has one rung.

    :raises GraphFormatError: if the file is not such an archive.
    :raises OSError: if it cannot be read.
    """
    one = load_graph(path)
    ladder = single_rung(one)
    try:
        with zipfile.ZipFile(path) as archive:
            sizes = [b for b in _sizes(archive) if ladder.rows]
            if not sizes:
                return ladder
            structures = {b: graph_from_json(
                member(archive, batch_member(b), LARGEST_JSON).decode()) for b in sizes}
            most = sum(t.nbytes for g in structures.values() for t in g.parameters.values())
            own = load_tensors(member(archive, BATCH_PARAMETERS, most + LARGEST_JSON))
    except (zipfile.BadZipFile, SafetensorError, UnicodeDecodeError, RuntimeError, KeyError,
            ) as error:
        raise GraphFormatError(f'{path} is not an archive of batches: {error}') from error
    graphs = {1: one}
    for b, structure in structures.items():
        given = {}
        for name, wanted in structure.parameters.items():
            tensor = own.get(f'{b}/{name}', one.parameters.get(name))
            if tensor is None or tensor.shape != wanted.shape or tensor.dtype != wanted.dtype:
                raise GraphFormatError(f'{path}: parameter {name!r} of the graph for {b} rows is '
                                       'missing, or another')
            given[name] = tensor
        graphs[b] = replace(structure, parameters=given)
        if why := _unlike(one, graphs[b], b):
            raise GraphFormatError(f'{path}: the graph for {b} rows is another: {why}')
    return BatchLadder(graphs, True)


def _sizes(archive: zipfile.ZipFile) -> list[int]:
    names = set(archive.namelist())
    return sorted(b for b in range(2, 513) if batch_member(b) in names)


def _no_rows(graph: OperatorGraph) -> str:
    """Say why the first dimensions of a graph for one row do not count rows; '' if they do."""
    for v in graph.inputs:
        if graph.values[v].shape[:1] != (1,):
            return f'its input {graph.values[v].name} has no first dimension of 1 for rows'
    for k, output in enumerate(graph.outputs):
        if not isinstance(output, ValueRef):
            return f'its output {k} is a constant'
        if graph.values[output.value].shape[:1] != (1,):
            return f'its output {k} has no first dimension of 1 for rows'
    return ''


def _unlike(one: OperatorGraph, graph: OperatorGraph, b: int) -> str:
    """Say in what a graph does not do for b rows what another does for one; '' if it does."""
    for what, mine, others in (('inputs', one.inputs, graph.inputs), (
            'outputs', _values(one.outputs), _values(graph.outputs))):
        if len(mine) != len(others):
            return f'it has {len(others)} {what} for {b} rows, {len(mine)} for one'
        for k, (first, other) in enumerate(zip(mine, others)):
            a, c = one.values[first], graph.values[other]
            if c.shape != (b, *a.shape[1:]) or c.dtype != a.dtype:
                return (f'{what} {k} have shape {tuple(c.shape)} for {b} rows and '
                        f'{tuple(a.shape)} for one')
    return ''


def _values(outputs: Sequence[Any]) -> list[int]:
    return [output.value for output in outputs if isinstance(output, ValueRef)]


def _same(a: torch.Tensor, b: torch.Tensor) -> bool:
    return a is b or a.shape == b.shape and a.dtype == b.dtype and torch.equal(
        flat_bytes(a), flat_bytes(b))
