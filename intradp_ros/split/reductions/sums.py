# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""Reductions that reduce their own results: sums, means, largest elements, norms, global pools."""
from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
import math
from math import prod
from typing import Any

import torch

from intradp_ros.split.calls.site import normal_dim, per_dim
from intradp_ros.split.reductions.draft import Draft, Reduction, summing_dtype, without
from intradp_ros.split.reductions.own_operators import operator, target
from intradp_ros.split.reductions.partial import partials

Reduce = Callable[[torch.Tensor, tuple[int, ...]], torch.Tensor]


def _product(x: torch.Tensor, dims: tuple[int, ...]) -> torch.Tensor:
    for dim in sorted(dims, reverse=True):
        x = x.prod(dim)
    return x


_REDUCE: dict[str, Reduce] = {
    'prod': _product,
    'amax': lambda x, dims: x.amax(dims),
    'amin': lambda x, dims: x.amin(dims),
    'all': lambda x, dims: x.all(dims),
    'any': lambda x, dims: x.any(dims),
    'logsumexp': lambda x, dims: x.logsumexp(dims),
}


def _reduce(
        x: torch.Tensor, how: str, order: float, dims: Sequence[int],
        dtype: torch.dtype) -> torch.Tensor:
    if how == 'sum':
        return torch.sum(x, tuple(dims), dtype=dtype)
    if how == 'norm':
        norm: torch.Tensor = torch.linalg.vector_norm(x, order, tuple(dims), dtype=dtype)
        return norm
    return _REDUCE[how](x.to(dtype), tuple(dims))


@operator('partial_reduction(Tensor x, str how, float order, int[] dims, ScalarType dtype)'
          ' -> Tensor')
def partial_reduction(
        x: torch.Tensor, how: str, order: float, dims: Sequence[int],
        dtype: torch.dtype) -> torch.Tensor:
    """Reduce rows to a record of type `dtype`, of the dimensions that are left."""
    return _reduce(x, how, order, dims, dtype).unsqueeze(0)


@operator('total_reduction(Tensor records, str how, float order, int count, int[] shape,'
          ' ScalarType dtype) -> Tensor')
def total_reduction(
        records: torch.Tensor, how: str, order: float, count: int, shape: Sequence[int],
        dtype: torch.dtype) -> torch.Tensor:
    """Reduce records to one; divide by `count` (of elements, for a mean; 1 otherwise)."""
    result = records
    if len(records) > 1:
        result = _reduce(records, how, order, (0,), records.dtype)
    if how == 'norm' and (records.dtype, dtype) == (torch.float64, torch.float32) \
            and 0 < abs(order) < math.inf:
        # A sum of powers that the type of the whole cannot hold is infinite there, too.
        infinite = result.pow(order) > torch.finfo(dtype).max
        result = result.masked_fill(infinite, math.inf if order > 0 else 0.0)
    if count > 1:
        result = result / count
    return result.to(dtype).view(tuple(shape))


def _two_steps(
        draft: Draft, how: str, dims: Sequence[int] | None, *, order: float = 2.0, count: int = 1,
        dtype: torch.dtype | None = None) -> Draft | None:
    """Reduce the first argument by records; `dims` None or empty means all."""
    records = _records(draft, how, dims, order, dtype)
    if records is None:
        return None
    result = draft.result
    return draft.finish(total_reduction, records, how, order, count, result.shape, result.dtype)


def _records(
        draft: Draft, how: str, dims: Sequence[int] | None, order: float,
        dtype: torch.dtype | None) -> Any:
    lead = draft.split_input
    if lead is None or not draft.site.only_first_output():
        return None
    shape = draft.shape(lead[0])
    dims = [normal_dim(d, len(shape)) for d in dims or range(len(shape))]
    if lead[1] not in dims:
        return None
    own = dtype or draft.dtype(lead[0])
    if how in ('sum', 'prod') and not own.is_floating_point and not own.is_complex:
        own = torch.int64
    if how in ('sum', 'prod', 'norm') and own == torch.float32:
        own = torch.float64  # parts may be far larger than the whole; many add up to errors
    own = torch.bool if how in ('all', 'any') else summing_dtype(own)
    return draft.add(partial_reduction, lead[0], how, order, sorted(dims), own,
                     shape=(1, *without(shape, dims)), dtype=own)


def fold_over_dims(draft: Draft, how: str) -> Draft | None:
    """Fold a reduction over some dimensions, or all."""
    call = draft.site.call
    dims = call.argument('dim') if call.has('dim') else None
    dims = [dims] if isinstance(dims, int) else dims
    dtype = call.argument('dtype') if call.has('dtype') else None
    return _two_steps(draft, how, dims, dtype=dtype)


def fold_mean(draft: Draft) -> Draft | None:
    """Fold a mean: sums travel, and are divided at last."""
    lead, call = draft.split_input, draft.site.call
    if lead is None:
        return None
    shape = draft.shape(lead[0])
    dims = (call.argument('dim') if call.has('dim') else None) or range(len(shape))
    return _two_steps(draft, 'sum', dims, count=prod(shape[d] for d in dims),
                      dtype=call.argument('dtype'))


def fold_norm(draft: Draft) -> Draft | None:
    """Fold a norm of any order but 0: it is the norm of the norms of the parts."""
    call = draft.site.call
    order = float(call.argument('ord'))
    lead = draft.split_input
    if order == 0 or lead is None or draft.dtype(lead[0]).is_complex:
        return None  # order 0 counts elements, which does not reduce itself
    return _two_steps(draft, 'norm', call.argument('dim'), order=order,
                      dtype=call.argument('dtype'))


def fold_pool(draft: Draft, spatial: int, how: str) -> Draft | None:
    """
    Fold pooling whose only window covers all rows.

    Where it pools to one element along the other dimensions too, all are
    reduced at once.  Otherwise the rows are reduced, and what is left is
    pooled along the other dimensions.
    """
    lead = draft.split_input
    if lead is None or not draft.site.only_first_output():
        return None
    (x, dim), shape, call = lead, draft.shape(lead[0]), draft.site.call
    axis = dim - (len(shape) - spatial)
    if axis < 0 or not _covers(draft, axis, spatial, shape[dim]):
        return None
    dims = range(len(shape) - spatial, len(shape))
    if all(_covers(draft, k, spatial, shape[d]) for k, d in enumerate(dims)):
        count = prod(shape[d] for d in dims) if how == 'sum' else 1
        return _two_steps(draft, how, dims, count=count)
    records = _records(draft, how, [dim], 2.0, None)
    one_row, dtype = _with(shape, dim, 1), draft.dtype(x)
    rows = draft.add(
        total_reduction, records, how, 2.0, shape[dim] if how == 'sum' else 1, one_row, dtype,
        shape=one_row, dtype=dtype)
    sizes = {name: _with(per_dim(call.argument(name), spatial), axis, 1)
             for name in ('output_size', 'kernel_size', 'stride')
             if call.has(name) and call.argument(name)}
    return draft.finish_same(rows, **sizes)


def _covers(draft: Draft, axis: int, spatial: int, size: int) -> bool:
    """Return whether the pool has one window along a spatial dimension, of all its elements."""
    call = draft.site.call
    if call.has('output_size'):
        return bool(per_dim(call.argument('output_size'), spatial)[axis] == 1)
    plain = not call.has('divisor_override') or call.argument('divisor_override') is None
    padding = per_dim(call.argument('padding'), spatial)[axis]
    dilation = per_dim(call.argument('dilation'), spatial)[axis] if call.has('dilation') else 1
    kernel = per_dim(call.argument('kernel_size'), spatial)[axis]
    return plain and padding == 0 and dilation == 1 and kernel == size


def _with(sizes: Sequence[Any], axis: int, size: int) -> list[Any]:
    return [*sizes[:axis], size, *sizes[axis + 1:]]


PARTIALS = partials((target(partial_reduction),))

REDUCTIONS: dict[str, Reduction] = {
    **{f'aten.{name}': partial(fold_over_dims, how=how) for how, names in {
        'sum': ('sum.dim_IntList', 'sum.default'),
        'amax': ('amax.default', 'max.default', 'max.dim'),
        'amin': ('amin.default', 'min.default', 'min.dim'),
        'all': ('all.default', 'all.dim', 'all.dims'),
        'any': ('any.default', 'any.dim', 'any.dims'),
        'prod': ('prod.default', 'prod.dim_int'),
        'logsumexp': ('logsumexp.default',),
    }.items() for name in names},
    'aten.mean.dim': fold_mean,
    'aten.mean.default': fold_mean,
    'aten.linalg_vector_norm.default': fold_norm,
    **{f'aten.{name}{n}d.default': partial(fold_pool, spatial=n, how=how)
       for n in (1, 2, 3) for name, how in (
           ('avg_pool', 'sum'), ('adaptive_avg_pool', 'sum'), ('_adaptive_avg_pool', 'sum'),
           ('adaptive_max_pool', 'amax'), ('max_pool', 'amax'))},
    **{f'aten.max_pool{n}d_with_indices.default': partial(fold_pool, spatial=n, how='amax')
       for n in (2, 3)},
}
