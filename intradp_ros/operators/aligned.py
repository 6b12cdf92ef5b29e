# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""Operators whose operands line up with the output along the split dimension."""
from __future__ import annotations

from collections import ChainMap
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from intradp_ros.graph.operator_graph import iter_refs, ParameterRef, ValueRef
from intradp_ros.operators.call import cut_rows
from intradp_ros.operators.local_operator import Kernel, Kind, Parameters
from intradp_ros.operators.region import Region, RowMap
from intradp_ros.operators.site import Operand, Site, Split

import torch

Place = Callable[[Operand], int]


@dataclass(frozen=True)
class _Lane:
    """Rows that one operand contributes; `cut` is where they must still be cut out."""

    row_map: RowMap | None
    cut: int | None


def aligned_split(site: Site, kind: Kind, dim: int, place: Place) -> Split | None:
    """
    Split an operator along `dim` of its output.

    `place` tells which dimension of an operand lines up with it (negative:
    none).  An operand of size 1 there is broadcast.  A parameter, or a value
    that is not split or split elsewhere, is needed whole and cut to the
    region by the kernel.  Return None if an operand has another size.
    """
    rows = site.output_shape[dim]
    values = [_lane(site, ref, place(ref), rows) for ref in _operands(site, ValueRef)]
    parameters = {
        ref.name: _lane(site, ref, place(ref), rows) for ref in _operands(site, ParameterRef)}
    lanes = [*values, *parameters.values()]
    if None in lanes:
        return None
    maps = tuple(lane.row_map for lane in values if lane and lane.row_map)
    value_cuts = {k: lane.cut for k, lane in enumerate(values) if lane and lane.cut is not None}
    parameter_cuts = {
        name: lane.cut for name, lane in parameters.items() if lane and lane.cut is not None}

    def bind(region: Region, parameters: Parameters) -> Kernel:
        if region.rows == rows:
            return site.call.compile(parameters)
        kernel = site.call.compile(_cut_parameters(parameters, parameter_cuts, region))
        return _cut_values(kernel, value_cuts, region) if value_cuts else kernel

    return Split(kind, dim, rows, maps, bind)


def _operands(site: Site, kind: type) -> list[Operand]:
    return list(iter_refs((site.operator.args, site.operator.kwargs), kind))


def _lane(site: Site, operand: Operand, dim: int, rows: int) -> _Lane | None:
    shape = site.shape(operand)
    size = shape[dim] if dim >= 0 else 1
    if size not in (1, rows):
        return None
    cut = dim if size == rows else None
    if isinstance(operand, ParameterRef):
        return _Lane(None, cut)
    if cut is not None and site.split_dim(operand) == dim:
        return _Lane(RowMap.identity(rows), None)
    return _Lane(RowMap.whole(rows, site.rows[operand.value]), cut)


def _cut_parameters(
        parameters: Parameters, cuts: Mapping[str, int], region: Region) -> Parameters:
    cut = {name: cut_rows(parameters[name], dim, *region) for name, dim in cuts.items()}
    return ChainMap(cut, parameters) if cut else parameters  # type: ignore[arg-type]


def _cut_values(kernel: Kernel, cuts: Mapping[int, int], region: Region) -> Kernel:
    def cut_first(inputs: list[torch.Tensor]) -> object:
        cut = list(inputs)
        for k, dim in cuts.items():
            cut[k] = cut_rows(cut[k], dim, *region)
        return kernel(cut)

    return cut_first
