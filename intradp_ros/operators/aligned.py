# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""Operators whose operands line up with the output along the split dimension."""
from __future__ import annotations

from collections import ChainMap
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from intradp_ros.graph.operator_graph import iter_refs, ParameterRef, ValueRef
from intradp_ros.operators.call import cut_rows
from intradp_ros.operators.local_operator import Kernel, Kind, Parameters
from intradp_ros.operators.region import Region, RowMap
from intradp_ros.operators.site import Operand, Site, Split

Place = Callable[[Operand], int]


def aligned_split(site: Site, kind: Kind, dim: int, place: Place) -> Split | None:
    """
    Split an operator along `dim` of its output.

    `place` tells which dimension of an operand lines up with it (negative:
    none).  An operand of size 1 there is broadcast.  A parameter, or a value
    that is not split or split elsewhere, is needed whole and cut to the
    region by the kernel.  Return None if an operand has another size.
    """
    rows = site.output_shape[dim]
    values, parameters = _operands(site, ValueRef), _operands(site, ParameterRef)
    if any(_size(site, x, place) not in (1, rows) for x in (*values, *parameters)):
        return None
    in_step = [
        site.split_dim(x) == place(x) and _size(site, x, place) == rows for x in values]
    maps = tuple(
        RowMap.identity(rows) if alike else RowMap.whole(rows, site.rows[x.value])
        for x, alike in zip(values, in_step))
    value_cuts = {
        k: place(x) for k, (x, alike) in enumerate(zip(values, in_step))
        if not alike and _size(site, x, place) == rows}
    parameter_cuts = {x.name: place(x) for x in parameters if _size(site, x, place) == rows}

    def bind(region: Region, parameters: Parameters) -> Kernel:
        if region.rows == rows:
            return site.call.compile(parameters)
        kernel = site.call.compile(_cut_parameters(parameters, parameter_cuts, region))
        return _cut_values(kernel, value_cuts, region) if value_cuts else kernel

    return Split(kind, dim, rows, maps, bind)


def _operands(site: Site, kind: type) -> list[Any]:
    return list(iter_refs((site.operator.args, site.operator.kwargs), kind))


def _size(site: Site, operand: Operand, place: Place) -> int:
    """Return the rows of an operand along the split dimension; 1 where it has none."""
    return site.shape(operand)[place(operand)] if place(operand) >= 0 else 1


def _cut_parameters(
        parameters: Parameters, cuts: Mapping[str, int], region: Region) -> Parameters:
    cut = {name: cut_rows(parameters[name], dim, *region) for name, dim in cuts.items()}
    return ChainMap(cut, parameters) if cut else parameters  # type: ignore[arg-type]


def _cut_values(kernel: Kernel, cuts: Mapping[int, int], region: Region) -> Kernel:
    def cut_first(inputs: Sequence[torch.Tensor]) -> Any:
        cut = list(inputs)
        for k, dim in cuts.items():
            cut[k] = cut_rows(cut[k], dim, *region)
        return kernel(cut)

    return cut_first
