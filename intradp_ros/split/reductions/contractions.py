# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""
Products that contract the rows: each part gives a partial product, and these are added.

A record is as large as the product: a linear layer behind flattened rows, or
keys times values in linear attention.
"""
from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from math import prod
from typing import Any
import weakref

import torch
from torch.nn.functional import linear

from intradp_ros.graph.operator_graph import ParameterRef, ValueRef
from intradp_ros.graph.paging import page_out
from intradp_ros.split.calls.call import cut_rows
from intradp_ros.split.calls.site import Operand, Rule, Site, Split
from intradp_ros.split.local_operator import Kernel, Kind, Parameters
from intradp_ros.split.reductions.draft import Draft, Reduction, summing_dtype
from intradp_ros.split.reductions.own_operators import operator, target
from intradp_ros.split.reductions.partial import RECORD_DIM
from intradp_ros.split.regions.region import Region, RowMap

COPIED_BYTES = 64 * 2**20
"""Weights up to this size are laid out anew for products with some rows."""

_RESHAPES = frozenset((
    'aten.view.default', 'aten._unsafe_view.default', 'aten.reshape.default',
    'aten.flatten.using_ints'))


@operator('partial_product(Tensor left, Tensor right) -> Tensor')
def partial_product(left: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
    """Return the product of columns by rows as a record."""
    return torch.matmul(_wide(left), _wide(right))[None]


def _wide(x: torch.Tensor) -> torch.Tensor:
    """Return half precision as single: parts may be far larger than the whole."""
    return x.to(summing_dtype(x.dtype))


@operator('partial_linear(Tensor x, Tensor weight, int first, int dim) -> Tensor')
def partial_linear(x: torch.Tensor, weight: torch.Tensor, first: int, dim: int) -> torch.Tensor:
    """Return the linear layer, without bias, of `x` flattened from dimension `first` on."""
    return linear(_wide(x.flatten(first)), _wide(weight))[None]


@operator('total_product(Tensor records, Tensor? added, Scalar beta, Scalar alpha,'
          ' ScalarType dtype) -> Tensor')
def total_product(
        records: torch.Tensor, added: torch.Tensor | None, beta: float, alpha: float,
        dtype: torch.dtype) -> torch.Tensor:
    """Return ``alpha * (sum of records) + beta * added``."""
    product = records.sum(0) if len(records) > 1 else records[0]
    product = product if alpha == 1 else product * alpha
    return (product if added is None else torch.add(product, added, alpha=beta)).to(dtype)


def split_partial_product(site: Site) -> Split | None:
    """Fold along the contracted dimension; a factor that is not split along it is cut."""
    left, right = site.operator.args
    places = {left: len(site.shape(left)) - 1, right: max(0, len(site.shape(right)) - 2)}
    in_step = {x for x in (left, right) if site.split_dim(x) == places[x]}
    if not in_step:
        return None
    (rows, *different) = {site.rows[x.value] for x in in_step}
    if different or any(site.shape(x)[places[x]] != rows for x in places if x not in in_step):
        return None
    values = [x for x in (left, right) if isinstance(x, ValueRef)]
    maps = tuple(RowMap.identity(rows) if x in in_step else RowMap.whole(rows, site.rows[x.value])
                 for x in values)

    def bind(region: Region, parameters: Parameters) -> Kernel:
        fetches = [_fetch(x, values, None if x in in_step else places[x], region, parameters)
                   for x in (left, right)]
        return lambda x: partial_product(*[fetch(x) for fetch in fetches])

    return Split(Kind.ROW, RECORD_DIM, rows, maps, bind, folded=True)


def _fetch(operand: Operand, values: list[ValueRef], cut: int | None, region: Region,
           parameters: Parameters) -> Callable[[Any], torch.Tensor]:
    """Return a function from a kernel's inputs to an operand, cut along a dimension if given."""
    if isinstance(operand, ParameterRef):
        whole = parameters[operand.name]
        tensor = whole if cut is None else cut_rows(whole, cut, *region)
        return lambda x: tensor
    place = values.index(operand)
    if cut is None:
        return lambda x: x[place]
    return lambda x: cut_rows(x[place], cut, *region)


def split_partial_linear(site: Site) -> Split | None:
    """Fold along the rows, by the columns of the weights that belong to them."""
    lead = site.lead()
    weight, first, dim = site.operator.args[1:]
    if lead is None or lead[1] != dim or not isinstance(weight, ParameterRef):
        return None
    rows, shape = site.rows[lead[0].value], site.shape(lead[0])
    if rows != shape[dim]:
        return None
    packed = _Packed(prod(shape[first:dim]), rows, prod(shape[dim + 1:]))

    def bind(region: Region, parameters: Parameters) -> Kernel:
        whole = parameters[weight.name]
        if region.rows == rows:
            return lambda x: partial_linear(x[0], whole, first, dim)
        if packed.before == 1:
            columns = cut_rows(whole, 1, *(row * packed.after for row in region))
            return lambda x: partial_linear(x[0], columns, first, dim)
        if whole.nbytes > COPIED_BYTES:
            return partial(_product_beside_zeros, weight=whole, first=first, dim=dim,
                           pads=_around(region, rows, len(shape) - dim))
        by_row = packed.of(whole)[region.start:region.stop].transpose(1, 2)
        return lambda x: _product_by_rows(x[0], by_row, first, dim)

    return Split(Kind.ROW, RECORD_DIM, rows, site.maps(RowMap.identity(rows), rows), bind,
                 folded=True)


def _around(region: Region, rows: int, place: int) -> list[int]:
    """Return how to pad rows to all of them, along a dimension counted from the last (1)."""
    return [*[0, 0] * (place - 1), region.start, rows - region.stop]


def _product_beside_zeros(
        x: Sequence[torch.Tensor], weight: torch.Tensor, first: int, dim: int,
        pads: list[int]) -> torch.Tensor:
    """Multiply by all weights: twice the time for half the rows, but no second copy of them."""
    return partial_linear(torch.constant_pad_nd(x[0], pads), weight, first, dim)


def _product_by_rows(
        x: torch.Tensor, by_row: torch.Tensor, first: int, dim: int) -> torch.Tensor:
    rows = x.movedim(dim, 0).reshape(by_row.shape[0], -1, by_row.shape[1])
    products = torch.bmm(_wide(rows), _wide(by_row))
    return products.sum(0).reshape(1, *x.shape[:first], by_row.shape[2])


class _Packed:
    """
    The weights of a linear layer behind flattened rows, laid out row by row.

    The columns of some rows are strewn over the weights, which makes a product
    with them several times slower than their share of the whole one.  One copy
    serves all regions, as long as any kernel of a region lives.  Weights too
    large to be kept twice are not laid out anew.
    """

    def __init__(self, before: int, rows: int, after: int) -> None:
        self.before, self.rows, self.after = before, rows, after
        self._known: tuple[weakref.ref[torch.Tensor], weakref.ref[torch.Tensor]] | None = None

    def of(self, weight: torch.Tensor) -> torch.Tensor:
        """Return the weights as (rows, outputs, elements of a row)."""
        if self._known and self._known[0]() is weight:
            packed = self._known[1]()
            if packed is not None:
                return packed
        packed = weight.view(-1, self.before, self.rows, self.after).permute(2, 0, 1, 3).reshape(
            self.rows, weight.shape[0], -1)
        page_out(weight)
        self._known = weakref.ref(weight), weakref.ref(packed)
        return packed


def fold_product(draft: Draft, operands: int) -> Draft | None:
    """Fold a product of two factors, perhaps with a third operand added."""
    *added, left, right = draft.site.operator.args[:operands]
    shapes = draft.shape(left), draft.shape(right)
    contracted = (draft.site.split_dim(left) == len(shapes[0]) - 1
                  or draft.site.split_dim(right) == max(0, len(shapes[1]) - 2))
    if left == right or not contracted or not draft.dtype(left).is_floating_point:
        return None
    call, shape = draft.site.call, draft.site.output_shape
    if added and draft.site.split_dim(added[0]) is not None:
        return None
    beta, alpha = (call.argument('beta'), call.argument('alpha')) if added else (1, 1)
    dtype = draft.dtype(left)
    records = draft.add(partial_product, left, right, shape=(1, *shape),
                        dtype=summing_dtype(dtype))
    return draft.finish(total_product, records, added[0] if added else None, beta, alpha, dtype)


def fold_linear(draft: Draft) -> Draft | None:
    """Fold a linear layer whose features hold the rows, flattened with others or alone."""
    x, weight = draft.site.operator.args[:2]
    flattened = _flattened(draft.site, x)
    if flattened is None or not isinstance(weight, ParameterRef):
        return None
    source, first, dim = flattened
    shape, dtype = draft.site.output_shape, draft.dtype(x)
    records = draft.add(partial_linear, source, weight, first, dim,
                        shape=(1, *draft.shape(source)[:first], shape[-1]),
                        dtype=summing_dtype(dtype))
    bias = draft.site.call.argument('bias')
    if draft.shape(records)[1:] == shape:
        return draft.finish(total_product, records, bias, 1, 1, dtype)
    product = draft.add(total_product, records, bias, 1, 1, dtype, shape=draft.shape(records)[1:],
                        dtype=dtype)
    return draft.finish('aten.view.default', product, list(shape))


def _flattened(site: Site, x: Operand) -> tuple[ValueRef, int, int] | None:
    """
    Return where the features `x` of a linear layer come from: a value and two dimensions.

    The value is split along the second one, and flattened from the first one
    on; all dimensions before are the same as in `x`, save for their grouping.
    """
    if not isinstance(x, ValueRef):
        return None
    dim, features = site.split_dim(x), site.shape(x)[-1]
    if dim is not None:
        return (x, dim, dim) if dim == len(site.shape(x)) - 1 else None
    producer = site.graph.producer.get(x.value)
    reshape = site.graph.operators[producer] if producer is not None else None
    if reshape is None or reshape.target not in _RESHAPES:
        return None
    source = reshape.args[0]
    dim, shape = site.split_dim(source), site.shape(source)
    first = next((k for k in reversed(range(len(shape))) if prod(shape[k:]) == features), None)
    return (source, first, dim) if dim is not None and first is not None and first <= dim else None


RULES: dict[str, Rule] = {
    target(partial_product): split_partial_product,
    target(partial_linear): split_partial_linear,
}

REDUCTIONS: dict[str, Reduction] = {
    'aten.linear.default': fold_linear,
    **dict.fromkeys(('aten.bmm.default', 'aten.matmul.default', 'aten.mm.default'),
                    partial(fold_product, operands=2)),
    **dict.fromkeys(('aten.addmm.default', 'aten.baddbmm.default'),
                    partial(fold_product, operands=3)),
}
