# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""Copies of a value in which a slice is another value (what captured in-place writes become)."""
from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import count
from operator import itemgetter

import numpy as np
import torch

from intradp_ros.graph.operator_graph import ParameterRef, ValueRef
from intradp_ros.split.calls.aligned import aligned_split, operands_of
from intradp_ros.split.calls.call import cut_rows
from intradp_ros.split.calls.site import normal_dim, Operand, Rule, Site, Split
from intradp_ros.split.local_operator import Kernel, Kind, Parameters
from intradp_ros.split.regions.region import Region, RowMap

Fetch = Callable[[Sequence[torch.Tensor]], torch.Tensor]


def split_slice_scatter(site: Site) -> Split | None:
    """Split the overwriting of a slice, of other dimensions or of some rows next to each other."""
    base, source = operands_of(site)
    written, rank = _written_dim(site), len(site.output_shape)
    dim = next((d for d in map(site.split_dim, (base, source)) if d is not None), None)
    if dim is None or dim != written:
        return None if dim is None else aligned_split(site, Kind.ELEMENT, dim, lambda x: dim)
    if site.call.argument('step') != 1 or len(site.shape(source)) != rank:
        return None
    size = site.output_shape[dim]
    start = site.call.argument('start') or 0
    first = min(max(normal_dim(start, size), 0), size)
    return _rows_overwritten(site, dim, Region(first, first + site.shape(source)[dim]))


def split_select_scatter(site: Site) -> Split | None:
    """Split the overwriting of one place of a dimension, of a row if it is the split one."""
    base, source = operands_of(site)
    written, dim, inner = _written_dim(site), site.split_dim(base), site.split_dim(source)
    if dim is None and inner is not None:
        dim = inner + (written <= inner)
    if dim is None:
        return None
    if dim != written:
        return aligned_split(site, Kind.ELEMENT, dim, [dim, dim - (written < dim)])
    row = normal_dim(site.call.argument('index'), site.output_shape[dim])
    return _rows_overwritten(site, dim, Region(row, row + 1))


def _written_dim(site: Site) -> int:
    return normal_dim(site.call.argument('dim'), len(site.output_shape))


def _rows(site: Site, operand: Operand) -> int:
    return site.rows[operand.value] if isinstance(operand, ValueRef) else 1


def _rows_overwritten(site: Site, dim: int, written: Region) -> Split:
    """Split along rows, `written` of which are those of the second operand."""
    rows, (base, source) = site.output_shape[dim], operands_of(site)
    whole_row = len(site.shape(source)) < len(site.output_shape)
    base_along = site.split_dim(base) == dim
    source_along = site.split_dim(source) == dim and not whole_row
    row = np.arange(rows)
    inside = (row >= written.start) & (row < written.stop)
    size = written.rows if source_along else _rows(site, source)
    maps = {
        base: RowMap.identity(rows) if base_along else RowMap.whole(rows, _rows(site, base)),
        source: RowMap.copies(np.where(inside, row - written.start, -1), size) if source_along
        else RowMap(np.where(inside, 0, size), np.where(inside, size, 0))}

    def bind(region: Region, parameters: Parameters) -> Kernel:
        fetch_base, fetch_source = _fetches((base, source), parameters)
        shared = written.intersect(region)
        head, tail = shared.start - region.start, region.stop - shared.stop

        def kernel(inputs: Sequence[torch.Tensor]) -> torch.Tensor:
            kept = fetch_base(inputs)
            kept = kept if base_along else cut_rows(kept, dim, *region)
            if not shared:
                return kept
            new = fetch_source(inputs).to(kept.dtype)
            if whole_row:
                new = new.unsqueeze(dim)
            elif not source_along:
                new = cut_rows(new, dim, shared.start - written.start, shared.stop - written.start)
            return torch.cat([
                kept.narrow(dim, 0, head), new, kept.narrow(dim, region.rows - tail, tail)], dim)

        return kernel

    return Split(Kind.ELEMENT, dim, rows, tuple(
        maps[x] for x in (base, source) if isinstance(x, ValueRef)), bind)


def _fetches(operands: Sequence[Operand], parameters: Parameters) -> Iterator[Fetch]:
    """Yield for each operand a function from the kernel's inputs to its tensor."""
    slots = count()
    for operand in operands:
        if isinstance(operand, ParameterRef):
            yield partial(_constant, parameters[operand.name])
        else:
            yield itemgetter(next(slots))


def _constant(tensor: torch.Tensor, inputs: Sequence[torch.Tensor]) -> torch.Tensor:
    return tensor


RULES: dict[str, Rule] = {
    'aten.slice_scatter.default': split_slice_scatter,
    'aten.select_scatter.default': split_select_scatter,
}
