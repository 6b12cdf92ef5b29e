# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""Rows moved or copied: roll, flip, repeat, selection by a constant index."""
from __future__ import annotations

from functools import partial

import numpy as np
import torch

from intradp_ros.graph.operator_graph import ParameterRef
from intradp_ros.split.calls.call import Call
from intradp_ros.split.calls.copies import chosen_rows, copied_rows
from intradp_ros.split.calls.site import follow, normal_dim, Rule, Site, Split
from intradp_ros.split.local_operator import Kind


def split_roll(site: Site) -> Split | None:
    """Split a roll; along the split dimension rows move on, and the last ones to the front."""
    lead = site.lead()
    shifts, dims = _listed(site, 'shifts'), _listed(site, 'dims')
    if lead is None or not dims:
        return None
    rank, rows = len(site.output_shape), site.output_shape[lead[1]]
    along = [normal_dim(dim, rank) == lead[1] for dim in dims]
    if not any(along):
        return follow(site, Kind.ELEMENT, lead[1])
    shift = sum(s for s, own in zip(shifts, along) if own)
    others = site.call.replace(
        shifts=[s for s, own in zip(shifts, along) if not own],
        dims=[d for d, own in zip(dims, along) if not own])
    source = (np.arange(rows) - shift) % rows
    return copied_rows(site, lead[1], source, None if all(along) else others)


def split_flip(site: Site) -> Split | None:
    """Split a reversal; along the split dimension the last row comes first."""
    rank = len(site.output_shape)
    return _flipped(site, [normal_dim(dim, rank) for dim in _listed(site, 'dims')])


def split_flip_of(site: Site, dim: int) -> Split | None:
    """Split a reversal of a fixed dimension."""
    return _flipped(site, [dim])


def _flipped(site: Site, dims: list[int]) -> Split | None:
    lead = site.lead()
    if lead is None or lead[1] not in dims:
        return follow(site, Kind.ELEMENT, lead[1]) if lead else None
    rows = site.output_shape[lead[1]]
    others = None if len(dims) == 1 else site.call.replace(
        dims=[dim for dim in dims if dim != lead[1]])
    return copied_rows(site, lead[1], rows - 1 - np.arange(rows), others)


def split_repeat(site: Site, argument: str = 'repeats') -> Split | None:
    """Split a repetition; along the split dimension all rows come again after the last one."""
    lead = site.lead()
    if lead is None:
        return None
    rank = len(site.shape(lead[0]))
    given = list(site.call.argument(argument))
    repeats, from_right = [1] * (rank - len(given)) + given, lead[1] - rank
    dim = len(site.output_shape) + from_right
    if repeats[from_right] == 1:
        return follow(site, Kind.ELEMENT, dim)
    repeats[from_right] = 1
    source = np.arange(site.output_shape[dim]) % site.shape(lead[0])[lead[1]]
    others = Call(torch.ops.aten.repeat.default, (site.operator.args[0], repeats), {})
    unchanged = len(repeats) == rank and all(n == 1 for n in repeats)
    return copied_rows(site, dim, source, None if unchanged else others)


def split_repeat_interleave(site: Site) -> Split | None:
    """Split a repetition of each row as often as the others."""
    lead, dim = site.lead(), site.call.argument('dim')
    if lead is None or (dim is None and len(site.shape(lead[0])) > 1):
        return None
    if normal_dim(dim or 0, len(site.output_shape)) != lead[1]:
        return follow(site, Kind.ELEMENT, lead[1])
    source = np.arange(site.output_shape[lead[1]]) // site.call.argument('repeats')
    return copied_rows(site, lead[1], source)


def split_index_select(site: Site) -> Split | None:
    """Split a selection by index along another dimension, or of rows by a constant index."""
    lead, index = site.lead(), site.call.argument('index')
    if lead is None:
        return None
    if normal_dim(site.call.argument('dim'), len(site.output_shape)) != lead[1]:
        return None if site.split_dim(index) is not None else follow(
            site, Kind.ELEMENT, lead[1])
    return chosen_rows(site, index) if isinstance(index, ParameterRef) else None


def _listed(site: Site, argument: str) -> list[int]:
    """Return an argument that is a number or several as a list."""
    given = site.call.argument(argument)
    return list(given) if isinstance(given, (list, tuple)) else [given]


RULES: dict[str, Rule] = {
    'aten.roll.default': split_roll,
    'aten.flip.default': split_flip,
    'aten.fliplr.default': partial(split_flip_of, dim=1),
    'aten.flipud.default': partial(split_flip_of, dim=0),
    'aten.repeat.default': split_repeat,
    'aten.tile.default': partial(split_repeat, argument='dims'),
    'aten.repeat_interleave.self_int': split_repeat_interleave,
    'aten.index_select.default': split_index_select,
}
