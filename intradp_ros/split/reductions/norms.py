# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""
Normalisation by statistics of all rows: their records travel, rows are normalised where they are.

Three operators stand for one: the records of a part, the coefficients that
follow from all records, and the rows by the coefficients.
"""
from __future__ import annotations

from typing import Any

import torch

from intradp_ros.split.calls.site import follow, Rule, Site, Split
from intradp_ros.split.local_operator import Kind
from intradp_ros.split.reductions.draft import Draft, Reduction, summing_dtype
from intradp_ros.split.reductions.moments import dim_records, group_records, merged
from intradp_ros.split.reductions.own_operators import operator, target


@operator('norm_coefficients(Tensor records, Tensor? weight, Tensor? bias, int[] shape, float eps,'
          ' ScalarType dtype) -> Tensor')
def norm_coefficients(
        records: torch.Tensor, weight: torch.Tensor | None, bias: torch.Tensor | None,
        shape: list[int], eps: float, dtype: torch.dtype) -> torch.Tensor:
    """Return centre, factor and shift, shape (3, N, C), of every image and channel."""
    _, mean, variance = merged(records)
    images, channels = shape
    each = channels * images // mean.numel()
    factor = _inverse_deviation(variance, eps, dtype)
    mean = mean.masked_fill(factor == 0, 0.0)  # distances from it may be infinite; 0 x inf is NaN
    centre = mean.to(dtype).double()  # what its rounding leaves out is shifted afterwards
    result = torch.stack((centre, factor, (centre - mean) * factor))
    if each > 1:
        result = result.repeat_interleave(each, 1)  # a copy, also of a single group
    result = result.view(3, images, channels)
    if weight is not None:
        result[1:] *= weight
    if bias is not None:
        result[2] += bias
    return result.to(dtype)


def _inverse_deviation(variance: torch.Tensor, eps: float, dtype: torch.dtype) -> torch.Tensor:
    # A variance that the type of the whole cannot hold is infinite there, too.
    infinite = variance > torch.finfo(dtype).max
    return (variance + eps).rsqrt_().masked_fill_(infinite, 0.0)


@operator('factor_and_mean(Tensor records, float eps, int[] shape, ScalarType dtype)'
          ' -> (Tensor, Tensor)')
def factor_and_mean(records: torch.Tensor, eps: float, shape: list[int], dtype: torch.dtype,
                    ) -> tuple[torch.Tensor, torch.Tensor]:
    """Return inverse deviations and means."""
    _, mean, variance = merged(records)
    factor = _inverse_deviation(variance, eps, dtype)
    mean = mean.masked_fill(factor == 0, 0.0)
    return factor.to(dtype).reshape(tuple(shape)), mean.to(dtype).reshape(tuple(shape))


@operator('scale_and_shift(Tensor x, Tensor coefficients) -> Tensor')
def scale_and_shift(x: torch.Tensor, coefficients: torch.Tensor) -> torch.Tensor:
    """Apply coefficients (3, N, C) to `x` (N, C, rows...): far from zero, centred first."""
    centre, factor, shift = coefficients.view(3, *x.shape[:2], *[1] * (x.dim() - 2))
    result: torch.Tensor = (x - centre).mul_(factor).add_(shift)
    return result.to(x.dtype)


def split_scaling(site: Site) -> Split | None:
    """Split along the rows; the coefficients are needed whole."""
    lead = site.lead()
    return follow(site, Kind.ELEMENT, lead[1]) if lead and lead[1] > 1 else None


def fold_group_norm(draft: Draft) -> Draft | None:
    """Fold a group normalisation."""
    return _fold(draft, draft.site.call.argument('num_groups'))


def fold_instance_norm(draft: Draft) -> Draft | None:
    """Fold an instance normalisation by its own statistics: each channel is a group."""
    if not draft.site.call.argument('use_input_stats'):
        return None
    return _fold(draft, draft.shape(draft.site.operator.args[0])[1])


def _fold(draft: Draft, groups: int) -> Draft | None:
    lead, call = draft.split_input, draft.site.call
    if lead is None or lead[1] < 2 or len(draft.site.operator.inputs) > 1:
        return None
    x, dtype = lead[0], draft.dtype(lead[0])
    each = list(draft.shape(x)[:2])
    coefficients = draft.add(
        norm_coefficients, group_records(draft, groups), call.argument('weight'),
        call.argument('bias'), each, float(call.argument('eps')), summing_dtype(dtype),
        shape=(3, *each), dtype=summing_dtype(dtype))
    return draft.finish(scale_and_shift, x, coefficients)


def fold_layer_norm(draft: Draft) -> Draft | None:
    """Fold a layer normalisation whose last dimensions hold the rows."""
    lead, call = draft.split_input, draft.site.call
    if lead is None or not draft.site.only_first_output():
        return None
    x, dtype = lead[0], draft.dtype(lead[0])
    shape = draft.shape(x)
    first = len(shape) - len(call.argument('normalized_shape'))
    if lead[1] < first or dtype != summing_dtype(dtype):
        return None
    one_each = (*shape[:first], *[1] * (len(shape) - first))
    records = dim_records(draft, range(first, len(shape)))
    factor, mean = draft.add_several(
        factor_and_mean, records, float(call.argument('eps')), one_each, dtype,
        shapes=[one_each] * 2, dtype=dtype)
    return _normalise(draft, x, factor, mean)


def _normalise(draft: Draft, x: Any, factor: Any, mean: Any) -> Draft:
    """Write the normalisation with operators that are split element by element."""
    call, dtype = draft.site.call, draft.dtype(x)
    steps: list[tuple[str, Any]] = [('aten.sub.Tensor', mean), ('aten.mul.Tensor', factor)]
    weight, bias = call.argument('weight'), call.argument('bias')
    steps += [('aten.mul.Tensor', weight)] if weight else []
    steps += [('aten.add.Tensor', bias)] if bias else []
    for called, operand in steps[:-1]:
        x = draft.add(called, x, operand, shape=draft.shape(x), dtype=dtype)
    return draft.finish(steps[-1][0], x, steps[-1][1])


RULES: dict[str, Rule] = {target(scale_and_shift): split_scaling}

REDUCTIONS: dict[str, Reduction] = {
    'aten.group_norm.default': fold_group_norm,
    'aten.instance_norm.default': fold_instance_norm,
    'aten.layer_norm.default': fold_layer_norm,
    'aten.native_layer_norm.default': fold_layer_norm,
}
