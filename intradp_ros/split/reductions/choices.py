# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""
Choices among the rows: the best ones, and elements by their place.

A record of the best `k` holds those of its rows and their places; the best of
all are among the best of the parts.  A record of a look-up holds the elements
that its rows have, and zeros for the others; these add up to all.
"""
from __future__ import annotations

from collections.abc import Sequence

import torch

from intradp_ros.graph.operator_graph import ParameterRef, ValueRef
from intradp_ros.split.calls.site import normal_dim, Operand, Rule, Site, Split
from intradp_ros.split.local_operator import Kernel, Kind, Parameters
from intradp_ros.split.reductions.draft import Draft, Reduction
from intradp_ros.split.reductions.own_operators import operator, target
from intradp_ros.split.reductions.partial import RECORD_DIM
from intradp_ros.split.regions.region import Region, RowMap

NOWHERE = -1
"""The place of what fills the record of fewer than `k` rows."""


@operator('partial_topk(Tensor x, int k, int dim, bool largest, int first) -> Tensor')
def partial_topk(x: torch.Tensor, k: int, dim: int, largest: bool, first: int) -> torch.Tensor:
    """
    Return the best elements along `dim` and their places as a record.

    Row 0 of `x` is row `first` of all.  The record has the type float64, which
    holds places up to 2**53, and shape (1, 2, dimensions of `x` with `k` rows).
    """
    values, places = x.topk(min(k, x.shape[dim]), dim, largest)
    record = torch.stack((values.double(), (places + first).double()))
    missing = k - x.shape[dim]
    if missing > 0:
        shape = [1, *x.shape[:dim], missing, *x.shape[dim + 1:]]
        # not a number is more than all
        worst = record.new_full(shape, float('-inf' if largest else 'nan'))
        filling = torch.cat((worst, record.new_full(shape, NOWHERE)))
        record = torch.cat((record, filling), dim + 1)
    return record[None]


@operator('total_topk(Tensor records, int dim, bool largest, ScalarType dtype)'
          ' -> (Tensor, Tensor)')
def total_topk(records: torch.Tensor, dim: int, largest: bool, dtype: torch.dtype,
               ) -> tuple[torch.Tensor, torch.Tensor]:
    """
    Return the best of all records, best first, and their places.

    Of equals those of the first rows are taken; from a single record, as torch
    took them.
    """
    if len(records) == 1:
        values, places = records[0]
        return values.to(dtype), places.long()
    k = records.shape[dim + 2]
    values, places = torch.cat(records.unbind(0), dim + 1)
    # fillings last among equals
    filling, order = (places == NOWHERE).sort(dim=dim, stable=True)
    values, places = values.gather(dim, order), places.gather(dim, order)
    values, order = values.sort(dim=dim, descending=largest, stable=True)
    return (values.narrow(dim, 0, k).to(dtype),
            places.gather(dim, order).narrow(dim, 0, k).long())


def split_partial_topk(site: Site) -> Split | None:
    """Fold along the rows, each of which is one element."""
    lead = site.lead()
    k, dim, largest, _ = site.operator.args[1:]
    if lead is None or not _rows_are_elements(site, lead[0], dim):
        return None
    rows = site.rows[lead[0].value]

    def bind(region: Region, parameters: Parameters) -> Kernel:
        return lambda x: partial_topk(x[0], k, dim, largest, region.start)

    return Split(Kind.ROW, RECORD_DIM, rows, site.maps(RowMap.identity(rows), rows), bind,
                 folded=True)


def fold_topk(draft: Draft) -> Draft | None:
    """Fold the choice of the best rows."""
    lead, call = draft.split_input, draft.site.call
    if lead is None or not draft.dtype(lead[0]).is_floating_point:
        return None
    (x, split), shape = lead, draft.shape(lead[0])
    dim, k, largest = (call.argument(name) for name in ('dim', 'k', 'largest'))
    if normal_dim(dim, len(shape)) != split or not _rows_are_elements(draft.site, x, split):
        return None
    records = draft.add(partial_topk, x, k, split, largest, 0, dtype=torch.float64,
                        shape=(1, 2, *shape[:split], k, *shape[split + 1:]))
    return draft.finish(total_topk, records, split, largest, draft.dtype(x))


@operator('partial_lookup(Tensor x, Tensor places, int dim, bool single, int first, int count)'
          ' -> Tensor')
def partial_lookup(x: torch.Tensor, places: torch.Tensor, dim: int, single: bool, first: int,
                   count: int) -> torch.Tensor:
    """
    Return what `x` has at places along `dim`, zeros for places elsewhere, as a record.

    Row 0 of `x` is row `first` of `count`.  If `single`, each place is that of
    one element (as in `torch.gather`), else that of a slice.
    """
    own = places.where(places >= 0, places + count) - first
    inside = (own >= 0) & (own < x.shape[dim])
    own = own.clamp(0, x.shape[dim] - 1)
    if single:
        return x.gather(dim, own).masked_fill(~inside, 0)[None]
    chosen: torch.Tensor = torch.ops.aten.index.Tensor(x, [*[None] * dim, own])
    inside = inside.reshape(*inside.shape, *[1] * (x.dim() - dim - 1))
    return chosen.masked_fill(~inside, 0)[None]


@operator('total_lookup(Tensor records) -> Tensor')
def total_lookup(records: torch.Tensor) -> torch.Tensor:
    """Return the elements of all records."""
    if len(records) == 1:
        return records[0]
    if records.dtype == torch.bool:
        return records.any(0)
    return records.sum(0, dtype=records.dtype)


def split_partial_lookup(site: Site) -> Split | None:
    """Fold along the rows of what is looked up in; all places are needed."""
    x, places, dim, single, _, count = site.operator.args
    if not _rows_are_elements(site, x, dim) or site.split_dim(places) is not None:
        return None
    maps = tuple(RowMap.identity(count) if ref == x else RowMap.whole(count, 1)
                 for ref in (x, places) if isinstance(ref, ValueRef))

    def bind(region: Region, parameters: Parameters) -> Kernel:
        first = region.start
        if isinstance(places, ParameterRef):
            constant = parameters[places.name]
            return lambda v: partial_lookup(v[0], constant, dim, single, first, count)
        return lambda v: partial_lookup(v[0], v[1], dim, single, first, count)

    return Split(Kind.ROW, RECORD_DIM, count, maps, bind, folded=True)


def fold_gather(draft: Draft) -> Draft | None:
    """Fold a look-up of single elements among the rows."""
    call, rank = draft.site.call, len(draft.site.output_shape)
    return _looked_up(draft, call.argument('index'), normal_dim(call.argument('dim'), rank), True)


def fold_index(draft: Draft) -> Draft | None:
    """Fold a look-up of whole rows by one index."""
    chosen = [(k, x) for k, x in enumerate(draft.site.call.argument('indices')) if x is not None]
    return _looked_up(draft, chosen[0][1], chosen[0][0], False) if len(chosen) == 1 else None


def fold_index_select(draft: Draft) -> Draft | None:
    """Fold a look-up of whole rows by a list of places."""
    lead, call = draft.split_input, draft.site.call
    if lead is None:
        return None
    dim = normal_dim(call.argument('dim'), len(draft.shape(lead[0])))
    return _looked_up(draft, call.argument('index'), dim, False)


def _looked_up(draft: Draft, places: Operand, dim: int, single: bool) -> Draft | None:
    lead, site = draft.split_input, draft.site
    if lead is None or lead[1] != dim or places == lead[0] or site.split_dim(places) is not None:
        return None
    if draft.dtype(places) not in _PLACES or not _rows_are_elements(site, lead[0], dim):
        return None
    records = draft.add(partial_lookup, lead[0], places, dim, single, 0, draft.shape(lead[0])[dim],
                        shape=(1, *site.output_shape), dtype=draft.dtype(lead[0]))
    return draft.finish(total_lookup, records)


def _rows_are_elements(site: Site, operand: Operand, dim: int) -> bool:
    """Return whether a value is split along a dimension, and each of its entries is a row."""
    return (isinstance(operand, ValueRef) and site.split_dim(operand) == dim
            and site.rows[operand.value] == site.shape(operand)[dim])


_PLACES: Sequence[torch.dtype] = (torch.int32, torch.int64)

RULES: dict[str, Rule] = {
    target(partial_topk): split_partial_topk,
    target(partial_lookup): split_partial_lookup,
}

REDUCTIONS: dict[str, Reduction] = {
    'aten.topk.default': fold_topk,
    'aten.gather.default': fold_gather,
    'aten.index.Tensor': fold_index,
    'aten.index_select.default': fold_index_select,
}
