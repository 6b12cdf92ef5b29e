# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""
Softmax along the rows: the largest element and the sum of exponentials travel.

A record is ``[largest, sum of exponentials of the differences to it]``; records are merged
like partial results of attention (Milakov and Gimelshein, 2018).
"""
from __future__ import annotations

from functools import partial

import torch

from intradp_ros.split.calls.site import follow, normal_dim, Rule, Site, Split
from intradp_ros.split.local_operator import Kind
from intradp_ros.split.reductions.draft import Draft, Reduction, summing_dtype, without
from intradp_ros.split.reductions.own_operators import operator, target
from intradp_ros.split.reductions.partial import partials


def exponentials(scores: torch.Tensor, dim: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the largest elements along `dim` (kept), and all as ``exp(score - largest)``."""
    largest = scores.amax(dim, keepdim=True)
    # where all are minus infinity, all exponentials are 0
    offset = largest.masked_fill(largest == float('-inf'), 0.0)
    return largest, (scores - offset).exp_()


@operator('partial_softmax(Tensor x, int dim, ScalarType dtype) -> Tensor')
def partial_softmax(x: torch.Tensor, dim: int, dtype: torch.dtype) -> torch.Tensor:
    """Return the record of `x` along `dim`, of type `dtype`, shape (1, 2, other dimensions)."""
    largest, exponential = exponentials(x.to(dtype), dim)
    return torch.stack((largest.squeeze(dim), exponential.sum(dim)))[None]


@operator('total_softmax(Tensor records, int dim) -> Tensor')
def total_softmax(records: torch.Tensor, dim: int) -> torch.Tensor:
    """Return largest element and sum of all records, shape (2, like the rows but 1 in `dim`)."""
    each, totals = records.unbind(1)
    largest = each.amax(0)
    total = (totals * (each - largest).exp()).sum(0)
    return torch.stack((largest, total)).unsqueeze(dim + 1)


@operator('apply_softmax(Tensor x, Tensor statistics, bool log, ScalarType dtype) -> Tensor')
def apply_softmax(
        x: torch.Tensor, statistics: torch.Tensor, log: bool, dtype: torch.dtype) -> torch.Tensor:
    """Return the softmax of rows, or its logarithm."""
    largest, total = statistics
    shifted: torch.Tensor = x.to(largest.dtype) - largest
    result = shifted.sub_(total.log()) if log else shifted.exp_().div_(total)
    return result.to(dtype)


def split_application(site: Site) -> Split | None:
    """Split along the rows; the statistics are needed whole."""
    lead = site.lead()
    return follow(site, Kind.ROW, lead[1]) if lead else None


def fold_softmax(draft: Draft, log: bool) -> Draft | None:
    """Fold a softmax along the split dimension."""
    lead, call = draft.split_input, draft.site.call
    if lead is None or not draft.dtype(lead[0]).is_floating_point:
        return None
    shape = draft.shape(lead[0])
    dim = normal_dim(call.argument('dim'), len(shape))
    if dim != lead[1]:
        return None
    result = draft.result.dtype
    dtype = summing_dtype(result)
    records = draft.add(partial_softmax, lead[0], dim, dtype,
                        shape=(1, 2, *without(shape, [dim])), dtype=dtype)
    statistics = draft.add(
        total_softmax, records, dim, shape=(2, *shape[:dim], 1, *shape[dim + 1:]), dtype=dtype)
    return draft.finish(apply_softmax, lead[0], statistics, log, result)


PARTIALS = partials((target(partial_softmax),))
RULES: dict[str, Rule] = {target(apply_softmax): split_application}

REDUCTIONS: dict[str, Reduction] = {
    **dict.fromkeys(('aten.softmax.int', 'aten._softmax.default'),
                    partial(fold_softmax, log=False)),
    **dict.fromkeys(('aten.log_softmax.int', 'aten._log_softmax.default'),
                    partial(fold_softmax, log=True)),
}
