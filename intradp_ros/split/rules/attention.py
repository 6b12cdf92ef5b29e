# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""Scaled dot-product attention: local in its queries, once keys and values are whole."""
from __future__ import annotations

from dataclasses import replace

import numpy as np
import torch

from intradp_ros.split.calls.labelled import Label, labelled_split, trailing
from intradp_ros.split.calls.site import Operand, Rule, rules, Site, Split
from intradp_ros.split.local_operator import Kernel, Parameters
from intradp_ros.split.regions.region import Region, RowMap

_HEADS: Label = -1


def split_attention(site: Site) -> Split | None:
    """
    Split attention along its queries, along batches or heads, or along features of its values.

    The softmax runs over all keys, so keys and values are needed whole, save
    that under a causal mask a query needs no key behind it.
    """
    call = site.call
    query, key, value = (call.argument(name) for name in ('query', 'key', 'value'))
    if not site.only_first_output() or call.argument('dropout_p'):
        return None
    shared = _shares_heads(site, query, key)
    terms = [
        _term(site, query, ['queries', 'features']),
        _term(site, key, ['keys', 'features'], shared),
        _term(site, value, ['keys', 'values'], shared)]
    if call.argument('attn_mask') is not None:
        terms.append(_term(site, call.argument('attn_mask'), ['queries', 'keys']))
    result = [*trailing(len(site.output_shape) - 2), 'queries', 'values']
    split = labelled_split(site, terms, result, 'queries')
    if split is None or split.dim is None:
        return None
    along = result[split.dim]
    if shared and along == _HEADS:
        return None
    if not call.argument('is_causal') or along != 'queries':
        return split
    return _causal(site, split) if site.split_dim(query) is not None else None


def _shares_heads(site: Site, query: Operand, key: Operand) -> bool:
    """Return whether a head of keys and values serves several heads of queries."""
    grouped = site.call.has('enable_gqa') and site.call.argument('enable_gqa')
    return bool(grouped) and site.shape(query)[-3] != site.shape(key)[-3]


def _term(
        site: Site, operand: Operand, matrix: list[Label], shared: bool = False) -> list[Label]:
    """Return an operand's labels: batches, heads, and the two of its matrices."""
    rank = len(site.shape(operand))
    batches = trailing(max(0, rank - 2))
    if shared:
        batches[-1] = 'shared heads'
    return [*batches, *matrix][-rank:]


def _causal(site: Site, split: Split) -> Split:
    """Let query `i` see keys up to `i`, and ask for no others where the keys are rows, too."""
    call, query = site.call, site.call.argument('query')
    operands = [call.argument('key'), call.argument('value')]
    keys = site.shape(operands[0])[-2]
    by_rows = all(site.split_dim(x) == len(site.shape(x)) - 2 for x in operands)
    seen = RowMap(np.zeros(split.rows), np.minimum(np.arange(split.rows) + 1, keys))
    dtype = site.graph.values[query.value].dtype

    def bind(region: Region, parameters: Parameters) -> Kernel:
        if region.rows == split.rows:
            return call.compile(parameters)
        width = seen(region).rows if by_rows else keys
        hidden = torch.ones(region.rows, width, dtype=torch.bool).triu(region.start + 1)
        mask = torch.zeros(hidden.shape, dtype=dtype).masked_fill(hidden, float('-inf'))
        return call.replace(attn_mask=mask, is_causal=False).compile(parameters)

    return replace(split, maps=(split.maps[0], seen, seen) if by_rows else split.maps, bind=bind)


def split_total_attention(site: Site) -> Split | None:
    """Put records of parts of the keys together for any of the queries, which have no rows yet."""
    batches = trailing(len(site.output_shape) - 2)
    return labelled_split(
        site, [['record', *batches, 'queries', 'sums']], [*batches, 'queries', 'values'],
        'queries')


RULES: dict[str, Rule] = {
    **rules(split_attention, (
        'aten._scaled_dot_product_flash_attention_for_cpu.default',
        'aten.scaled_dot_product_attention.default',
    )),
    'intradp.total_attention.default': split_total_attention,
}
