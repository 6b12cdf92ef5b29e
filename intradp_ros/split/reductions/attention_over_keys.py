# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""
Attention of whole queries to split keys and values, such as learned queries.

A record holds, for each query, the values weighted by the exponentials of
the scores, the sum of these weights and the largest score; records are
merged like the blocks of FlashAttention (Dao et al., 2022).
"""
from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import sqrt
from typing import Any

import torch

from intradp_ros.graph.operator_graph import ParameterRef, ValueRef
from intradp_ros.split.calls.call import cut_rows
from intradp_ros.split.calls.site import Rule, Site, Split
from intradp_ros.split.local_operator import Kernel, Kind, Parameters
from intradp_ros.split.reductions.draft import Draft, Reduction, summing_dtype
from intradp_ros.split.reductions.own_operators import operator, target
from intradp_ros.split.reductions.partial import RECORD_DIM
from intradp_ros.split.reductions.softmaxes import exponentials
from intradp_ros.split.regions.region import Region, RowMap


@operator('partial_attention(Tensor query, Tensor key, Tensor value, Tensor? mask, float scale)'
          ' -> Tensor')
def partial_attention(
        query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, mask: torch.Tensor | None,
        scale: float) -> torch.Tensor:
    """Return the record of some keys and values, shape (1, ..., queries, features + 2)."""
    query, key, value = (x.to(summing_dtype(x.dtype)) for x in (query, key, value))
    scores = torch.matmul(query * scale, key.transpose(-2, -1))
    if mask is not None:
        scores = (scores.masked_fill(~mask, float('-inf')) if mask.dtype == torch.bool
                  else scores + mask)
    largest, weights = exponentials(scores, -1)
    weighted = torch.matmul(weights, value)
    return torch.cat((weighted, weights.sum(-1, keepdim=True), largest), -1)[None]


@operator('total_attention(Tensor records, ScalarType dtype) -> Tensor')
def total_attention(records: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """Return the values, weighted by the softmax over all keys."""
    largest = records[..., -1:]
    overall = largest.amax(0)
    offset = overall.masked_fill(overall == float('-inf'), 0.0)
    merged = (records[..., :-1] * (largest - offset).exp()).sum(0)
    weight = merged[..., -1:]
    # a query whose keys are all masked gets zeros, as from torch
    return (merged[..., :-1] / weight.masked_fill(weight == 0.0, 1.0)).to(dtype)


def split_partial_attention(site: Site) -> Split | None:
    """Fold along the keys; a mask is cut to them."""
    query, key, value, mask, scale = site.operator.args
    rows = site.rows[key.value] if isinstance(key, ValueRef) else 1
    split = [site.split_dim(x) for x in (key, value)]
    if split != [len(site.shape(x)) - 2 for x in (key, value)] or rows != site.shape(key)[-2]:
        return None
    maps = tuple(RowMap.identity(rows) if ref in (key, value)
                 else RowMap.whole(rows, site.rows[ref.value])
                 for ref in (query, key, value, mask) if isinstance(ref, ValueRef))
    cut = mask is not None and site.shape(mask)[-1] == rows

    def bind(region: Region, parameters: Parameters) -> Kernel:
        def kernel(inputs: Sequence[torch.Tensor]) -> torch.Tensor:
            left = iter(inputs)
            q, k, v, m = (_operand(ref, left, parameters) for ref in (query, key, value, mask))
            return partial_attention(q, k, v, cut_rows(m, -1, *region) if cut else m, scale)

        return kernel

    return Split(Kind.ROW, RECORD_DIM, rows, maps, bind, folded=True)


def _operand(ref: Any, values: Iterator[torch.Tensor], parameters: Parameters) -> Any:
    if isinstance(ref, ParameterRef):
        return parameters[ref.name]
    return None if ref is None else next(values)


def fold_attention(draft: Draft) -> Draft | None:
    """Fold attention whose queries are not split along the keys."""
    call, site = draft.site.call, draft.site
    query, key, value = site.operator.args[:3]
    mask = call.argument('attn_mask')
    plain = (not call.argument('is_causal') and not call.argument('dropout_p')
             and not (call.has('enable_gqa') and call.argument('enable_gqa')))
    if not plain or len({query, key, value, mask}) < 4 or site.split_dim(query) is not None:
        return None
    if any(site.split_dim(x) != len(draft.shape(x)) - 2 for x in (key, value)):
        return None
    if site.split_dim(mask) is not None:
        return None
    scale, shape = call.argument('scale'), site.output_shape
    scale = 1.0 / sqrt(draft.shape(query)[-1]) if scale is None else float(scale)
    records = draft.add(partial_attention, query, key, value, mask, scale,
                        shape=(1, *shape[:-1], shape[-1] + 2),
                        dtype=summing_dtype(draft.dtype(query)))
    return draft.finish(total_attention, records, draft.dtype(query))


RULES: dict[str, Rule] = {target(partial_attention): split_partial_attention}

REDUCTIONS: dict[str, Reduction] = {
    'aten.scaled_dot_product_attention.default': fold_attention,
}
