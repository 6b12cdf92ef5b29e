# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""Concatenation and stacking."""
from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import numpy as np
import torch

from intradp_ros.graph.operator_graph import ParameterRef, ValueRef
from intradp_ros.split.calls.aligned import aligned_split
from intradp_ros.split.calls.call import cut_rows
from intradp_ros.split.calls.site import normal_dim, Operand, Rule, rules, Site, Split
from intradp_ros.split.local_operator import Kernel, Kind, Parameters
from intradp_ros.split.regions.region import Region, RowMap


def split_cat(site: Site) -> Split | None:
    """Split a concatenation along the dimension that the call says."""
    return _joined_along(site, site.call.argument('dim'))


def split_joined_along(site: Site, dim: int) -> Split | None:
    """Split a concatenation along a fixed dimension; of fewer dimensions it is something else."""
    ranks = {len(site.shape(x)) for x in site.call.argument('tensors')}
    return _joined_along(site, dim) if min(ranks) > max(1, dim) else None


def _joined_along(site: Site, joined: int) -> Split | None:
    """Split along another dimension side by side, else end to end."""
    operands = list(site.call.argument('tensors'))
    dim = _first_split_dim(site, operands)
    if dim is None or len({len(site.shape(x)) for x in operands}) > 1:
        return None
    if dim != normal_dim(joined, len(site.output_shape)):
        return aligned_split(site, Kind.ELEMENT, dim, lambda operand: dim)
    return _end_to_end(site, operands, dim)


def split_stack(site: Site) -> Split | None:
    """Split a stack, whose new dimension is never split."""
    operands = list(site.call.argument('tensors'))
    dim = _first_split_dim(site, operands)
    if dim is None:
        return None
    new = normal_dim(site.call.argument('dim'), len(site.output_shape))
    return aligned_split(site, Kind.ELEMENT, dim + (new <= dim), lambda operand: dim)


def _first_split_dim(site: Site, operands: Sequence[Operand]) -> int | None:
    dims = (site.split_dim(operand) for operand in operands)
    return next((dim for dim in dims if dim is not None), None)


def _end_to_end(site: Site, operands: Sequence[Operand], dim: int) -> Split:
    rows = site.output_shape[dim]
    stops = np.cumsum([site.shape(operand)[dim] for operand in operands]).tolist()
    spans = [
        Region(stop - site.shape(operand)[dim], stop) for stop, operand in zip(stops, operands)]
    maps = tuple(
        _span_map(span, rows, site.split_dim(operand) == dim, site.rows[operand.value])
        for span, operand in zip(spans, operands) if isinstance(operand, ValueRef))

    def bind(region: Region, parameters: Parameters) -> Kernel:
        if region.rows == rows:
            return site.call.compile(parameters)
        return _join_parts(site, operands, spans, dim, region, parameters)

    return Split(Kind.ELEMENT, dim, rows, maps, bind)


def _span_map(span: Region, rows: int, along: bool, input_rows: int) -> RowMap:
    """Map to an input that fills rows `span` of the output, by rows or needed whole."""
    row = np.arange(rows)
    if along:
        size = span.rows
        return RowMap((row - span.start).clip(0, size), (row + 1 - span.start).clip(0, size))
    inside = (row >= span.start) & (row < span.stop)
    return RowMap(np.where(inside, 0, input_rows), np.where(inside, input_rows, 0))


def _join_parts(
        site: Site, operands: Sequence[Operand], spans: Sequence[Region], dim: int,
        region: Region, parameters: Parameters) -> Kernel:
    """Return a kernel that joins what the region has of each operand."""
    slot = -1
    parts: list[tuple[int, Region | None] | torch.Tensor] = []
    for span, operand in zip(spans, operands):
        slot += isinstance(operand, ValueRef)
        shared = span.intersect(region)
        own = Region(shared.start - span.start, shared.stop - span.start)
        if not shared:
            continue
        if isinstance(operand, ParameterRef):
            parts.append(cut_rows(parameters[operand.name], dim, *own))
        else:
            parts.append((slot, None if site.split_dim(operand) == dim else own))
    return _joined(parts, dim)


def _joined(parts: Sequence[tuple[int, Region | None] | torch.Tensor], dim: int) -> Kernel:
    def fetch(part: tuple[int, Region | None] | torch.Tensor,
              inputs: Sequence[torch.Tensor]) -> torch.Tensor:
        if isinstance(part, torch.Tensor):
            return part
        slot, cut = part
        return inputs[slot] if cut is None else cut_rows(inputs[slot], dim, *cut)

    return lambda x: torch.cat([fetch(part, x) for part in parts], dim)


RULES: dict[str, Rule] = {
    **rules(split_cat, ('aten.cat.default', 'aten.concat.default', 'aten.concatenate.default')),
    'aten.stack.default': split_stack,
    'aten.vstack.default': partial(split_joined_along, dim=0),
    'aten.hstack.default': partial(split_joined_along, dim=1),
    'aten.dstack.default': partial(split_joined_along, dim=2),
}
