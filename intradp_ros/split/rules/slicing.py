# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""Cutting values: slice, narrow, select, split, chunk, unbind."""
from __future__ import annotations

import numpy as np

from intradp_ros.split.calls.copies import copied_rows
from intradp_ros.split.calls.site import follow, normal_dim, Rule, rules, Site, Split
from intradp_ros.split.local_operator import Kind
from intradp_ros.split.regions.region import RowMap


def split_slice(site: Site) -> Split | None:
    """Split a slice; along the split dimension it shifts and spreads the rows."""
    start, step = site.call.argument('start') or 0, site.call.argument('step')
    return _strided(site, start, step)


def split_narrow(site: Site) -> Split | None:
    """Split a narrowing, which is a slice by length."""
    return _strided(site, site.call.argument('start'), 1)


def split_select(site: Site) -> Split | None:
    """Split a selection; a selected row of the split dimension is needed alone."""
    lead = site.lead()
    if lead is None:
        return None
    operand, dim = lead
    chosen = normal_dim(site.call.argument('dim'), len(site.shape(operand)))
    if chosen != dim:
        return follow(site, Kind.ELEMENT, dim - (chosen < dim))
    row = normal_dim(site.call.argument('index'), site.shape(operand)[dim])
    one = site.call.replace(index=0)
    return Split(
        Kind.ELEMENT, None, 1, site.maps(RowMap([row], [row + 1]), 1),
        lambda region, parameters: one.compile(parameters))


def split_pieces(site: Site) -> Split | None:
    """Split a division into pieces along another dimension than the split one."""
    lead = site.lead()
    if lead is None or _piece_dim(site) == lead[1]:
        return None
    return follow(site, Kind.ELEMENT, lead[1])


def split_unbind(site: Site) -> Split | None:
    """Split a division into slices along another dimension than the split one."""
    lead = site.lead()
    if lead is None or _piece_dim(site) == lead[1]:
        return None
    return follow(site, Kind.ELEMENT, lead[1] - (_piece_dim(site) < lead[1]))


def _piece_dim(site: Site) -> int:
    return normal_dim(site.call.argument('dim'), len(site.shape(site.operator.args[0])))


def _strided(site: Site, start: int, step: int) -> Split | None:
    lead = site.lead()
    if lead is None:
        return None
    operand, dim = lead
    if _piece_dim(site) != dim:
        return follow(site, Kind.ELEMENT, dim)
    input_rows, rows = site.shape(operand)[dim], site.output_shape[dim]
    first = min(max(normal_dim(start, input_rows), 0), input_rows)
    return copied_rows(site, dim, first + step * np.arange(rows))


RULES: dict[str, Rule] = {
    'aten.slice.Tensor': split_slice,
    'aten.narrow.default': split_narrow,
    'aten.select.int': split_select,
    'aten.unbind.int': split_unbind,
    **rules(split_pieces, (
        'aten.chunk.default',
        'aten.split.Tensor',
        'aten.split_with_sizes.default',
        'aten.unsafe_chunk.default',
        'aten.unsafe_split.Tensor',
        'aten.unsafe_split_with_sizes.default',
    )),
}
