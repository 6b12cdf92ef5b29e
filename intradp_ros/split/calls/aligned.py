# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""Operators whose operands line up with the output along the split dimension."""
from __future__ import annotations

from collections import ChainMap
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import torch

from intradp_ros.graph.operator_graph import iter_refs, ParameterRef, ValueRef
from intradp_ros.split.calls.call import cut_rows
from intradp_ros.split.calls.site import Operand, Site, Split
from intradp_ros.split.local_operator import Kernel, Kind, Parameters
from intradp_ros.split.regions.region import Region, RowMap

Place = Callable[[Operand], int]


def aligned_split(
        site: Site, kind: Kind, dim: int, places: Place | Sequence[int]) -> Split | None:
    """
    Split an operator along `dim` of its output.

    `places` says which dimension of each operand, in the order of
    `operands_of`, lines up with it (negative: none).  An operand of size 1
    there is broadcast.  A parameter, or a value that is not split or split
    elsewhere, is needed whole and cut to the region by the kernel.  Return
    None if an operand has another size, or a parameter two places.
    """
    rows, operands = site.output_shape[dim], operands_of(site)
    wanted = [places(x) for x in operands] if callable(places) else places
    sizes = [site.shape(x)[place] if place >= 0 else 1 for x, place in zip(operands, wanted)]
    if any(size not in (1, rows) for size in sizes):
        return None
    placed = [place if size == rows else -1 for place, size in zip(wanted, sizes)]
    values = [(x, at) for x, at in zip(operands, placed) if isinstance(x, ValueRef)]
    in_step = [at >= 0 and site.split_dim(x) == at for x, at in values]
    maps = tuple(
        RowMap.identity(rows) if alike else RowMap.whole(rows, site.rows[x.value])
        for (x, _), alike in zip(values, in_step))
    value_cuts = {
        k: at for k, ((_, at), alike) in enumerate(zip(values, in_step))
        if at >= 0 and not alike}
    parameter_cuts = _parameter_places(zip(operands, placed))
    if parameter_cuts is None:
        return None

    def bind(region: Region, parameters: Parameters) -> Kernel:
        if region.rows == rows:
            return site.call.compile(parameters)
        kernel = site.call.compile(_cut_parameters(parameters, parameter_cuts, region))
        return _cut_values(kernel, value_cuts, region) if value_cuts else kernel

    return Split(kind, dim, rows, maps, bind)


def operands_of(site: Site) -> list[Operand]:
    """Return the values and parameters that an operator reads, in order, one for each reading."""
    return list(iter_refs((site.operator.args, site.operator.kwargs), (ValueRef, ParameterRef)))


def _parameter_places(placed: Iterable[tuple[Operand, int]]) -> dict[str, int] | None:
    """Return where to cut each parameter by name, or None if one has several places."""
    places: dict[str, int] = {}
    for operand, place in placed:
        if isinstance(operand, ParameterRef) and places.setdefault(operand.name, place) != place:
            return None
    return {name: place for name, place in places.items() if place >= 0}


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
