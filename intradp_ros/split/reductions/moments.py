# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""
Mean and variance by records of count, mean and sum of squared deviations.

A record is one row ``[count, means, inverse deviations]`` for any number of
groups, as torch's fastest operators return them.  Records are merged as by
Chan, Golub and LeVeque (1979): without differences of large sums, so that a
large mean does not drown a small variance.  All of it is double precision:
single precision could not distinguish the means of parts far from zero, and
not hold squares beyond 1e38.  A record is a few numbers for each group.
"""
from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from math import prod

import torch

from intradp_ros.split.calls.call import Call
from intradp_ros.split.calls.site import normal_dim
from intradp_ros.split.reductions.draft import Draft, Reduction, without
from intradp_ros.split.reductions.own_operators import operator, target
from intradp_ros.split.reductions.partial import partials


@operator('partial_group_moments(Tensor x, int groups) -> Tensor')
def partial_group_moments(x: torch.Tensor, groups: int) -> torch.Tensor:
    """Return the record of `x` (N, C, rows...) for each image and group of channels."""
    wide = x.double().contiguous()
    images, channels, each = x.shape[0], x.shape[1], prod(x.shape[2:])
    # With epsilon 0 the normalisation of torch returns the inverse of the plain deviations,
    # by far its fastest way to them.  For channels last it would subtract large squares.
    _, mean, inverse = torch.native_group_norm(
        wide, None, None, images, channels, each, groups, 0.0)
    return _record(each * (channels // groups), mean, inverse)


@operator('partial_moments(Tensor x, int[] dims) -> Tensor')
def partial_moments(x: torch.Tensor, dims: Sequence[int]) -> torch.Tensor:
    """Return the record of `x` for each index along the dimensions that are not in `dims`."""
    wide = x.double()
    kept = [d for d in range(x.dim()) if d not in dims]
    count = prod(x.shape[d] for d in dims)
    flat = wide.permute(*kept, *dims).reshape(-1, count)
    _, mean, inverse = torch.native_layer_norm(flat, [count], None, None, 0.0)
    return _record(count, mean, inverse)


def _record(count: int, mean: torch.Tensor, inverse: torch.Tensor) -> torch.Tensor:
    return torch.cat([mean.new_full((1,), count), mean.view(-1), inverse.view(-1)]).unsqueeze(0)


def merged(records: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Return count, means and variances (without correction) of all records."""
    counts, (means, inverses) = records[:, :1], records[:, 1:].chunk(2, 1)
    variances = inverses.pow(-2)
    if len(records) == 1:
        return counts[0], means[0], variances[0]
    count = counts.sum()
    shares, off = counts / count, means - means[0]
    shift = (shares * off).sum(0)
    return count, means[0] + shift, (shares * (variances + (off - shift).square())).sum(0)


@operator('total_moments(Tensor records, float correction, bool deviation, int[] shape,'
          ' ScalarType dtype) -> (Tensor, Tensor)')
def total_moments(
        records: torch.Tensor, correction: float, deviation: bool, shape: Sequence[int],
        dtype: torch.dtype) -> tuple[torch.Tensor, torch.Tensor]:
    """Return variance, or standard deviation, and mean."""
    count, mean, variance = merged(records)
    if correction:
        variance = variance * (count / (count - correction).clamp(min=0.0))
    if deviation:
        variance = variance.sqrt()
    return variance.to(dtype).reshape(tuple(shape)), mean.to(dtype).reshape(tuple(shape))


def group_records(draft: Draft, groups: int) -> object:
    """Add the records of the first argument (N, C, rows...) by image and group."""
    x = draft.site.operator.args[0]
    images = draft.shape(x)[0]
    return draft.add(partial_group_moments, x, groups,
                     shape=(1, 1 + 2 * images * groups), dtype=torch.float64)


def dim_records(draft: Draft, dims: Sequence[int]) -> object:
    """Add the records of the first argument over some dimensions."""
    x = draft.site.operator.args[0]
    kept = prod(without(draft.shape(x), dims))
    return draft.add(partial_moments, x, list(dims), shape=(1, 1 + 2 * kept),
                     dtype=torch.float64)


def fold_variance(draft: Draft, deviation: bool = False) -> Draft | None:
    """Fold a variance (with the mean, if it is read), or a standard deviation."""
    lead, call = draft.split_input, draft.site.call
    if lead is None or not draft.dtype(lead[0]).is_floating_point:
        return None
    shape = draft.shape(lead[0])
    given = call.argument('dim') if call.has('dim') else None
    dims = sorted(normal_dim(d, len(shape)) for d in given or range(len(shape)))
    if lead[1] not in dims:
        return None
    return draft.finish(total_moments, dim_records(draft, dims), _correction(call), deviation,
                        draft.site.output_shape, draft.dtype(lead[0]))


def _correction(call: Call) -> float:
    if call.has('unbiased'):
        return float(call.argument('unbiased'))
    correction = call.argument('correction')
    return 1.0 if correction is None else float(correction)


PARTIALS = partials((target(partial_group_moments), target(partial_moments)))

REDUCTIONS: dict[str, Reduction] = {
    f'aten.{name}.{overload}': partial(fold_variance, deviation=name == 'std')
    for name in ('var', 'var_mean', 'std') for overload in ('default', 'dim', 'correction')}
