# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""Operators that only rearrange dimensions."""
from __future__ import annotations

import torch

from intradp_ros.split.calls.call import Call
from intradp_ros.split.calls.site import follow, normal_dim, Rule, rules, Site, Split
from intradp_ros.split.local_operator import Kernel, Kind, Parameters
from intradp_ros.split.regions.region import Region, RowMap


def split_permute(site: Site) -> Split | None:
    """Split a permutation of the dimensions."""
    lead = site.lead()
    if lead is None:
        return None
    rank = len(site.output_shape)
    order = [normal_dim(d, rank) for d in site.call.argument('dims')]
    return follow(site, Kind.ELEMENT, order.index(lead[1]))


def split_transpose(site: Site) -> Split | None:
    """Split an exchange of two dimensions."""
    rank = len(site.output_shape)
    return _exchange(
        site, *(normal_dim(site.call.argument(name), rank) for name in ('dim0', 'dim1')))


def split_matrix_transpose(site: Site) -> Split | None:
    """Split the transposition of a matrix; of a vector it does nothing."""
    return _exchange(site, 0, 1)


def _exchange(site: Site, a: int, b: int) -> Split | None:
    lead = site.lead()
    if lead is None:
        return None
    exchanged = {a: b, b: a}
    return follow(site, Kind.ELEMENT, exchanged.get(lead[1], lead[1]))


def split_unsqueeze(site: Site) -> Split | None:
    """Split the insertion of a dimension of size 1."""
    lead = site.lead()
    if lead is None:
        return None
    new = normal_dim(site.call.argument('dim'), len(site.output_shape))
    return follow(site, Kind.ELEMENT, lead[1] + (new <= lead[1]))


def split_squeeze(site: Site) -> Split | None:
    """Split the removal of dimensions of size 1; a region of one row keeps its dimension."""
    lead = site.lead()
    if lead is None:
        return None
    shape = site.shape(lead[0])
    gone = [k for k in _squeezed(site.call, len(shape)) if shape[k] == 1]
    call = Call(torch.ops.aten.squeeze.dims, (site.operator.args[0], gone), {})
    dim = lead[1] - sum(k < lead[1] for k in gone)
    rows = site.output_shape[dim]
    return Split(
        Kind.ELEMENT, dim, rows, site.maps(RowMap.identity(rows), rows),
        lambda region, parameters: call.compile(parameters))


def _squeezed(call: Call, rank: int) -> list[int]:
    """Return the dimensions that a squeeze may remove."""
    if not call.has('dim'):
        return list(range(rank))
    dims = call.argument('dim')
    return [normal_dim(d, rank) for d in (dims if isinstance(dims, (list, tuple)) else [dims])]


def split_view_as_complex(site: Site) -> Split | None:
    """Split the view of pairs in the last dimension as complex numbers."""
    lead = site.lead()
    return follow(site, Kind.ELEMENT, lead[1]) if lead and lead[1] < len(
        site.output_shape) else None


def split_view_as_real(site: Site) -> Split | None:
    """Split the view of complex numbers as pairs in a new last dimension."""
    lead = site.lead()
    return follow(site, Kind.ELEMENT, lead[1]) if lead else None


def split_expand(site: Site) -> Split | None:
    """Split an expansion, which never expands a dimension of several rows."""
    lead = site.lead()
    if lead is None:
        return None
    from_right = lead[1] - len(site.shape(lead[0]))
    dim = len(site.output_shape) + from_right
    sizes = list(site.output_shape)
    rows = sizes[dim]

    def bind(region: Region, parameters: Parameters) -> Kernel:
        part = [*sizes[:dim], region.rows, *sizes[dim + 1:]]
        return site.call.replace(size=part).compile(parameters)

    return Split(Kind.ELEMENT, dim, rows, site.maps(RowMap.identity(rows), rows), bind)


RULES: dict[str, Rule] = {
    'aten.permute.default': split_permute,
    'aten.transpose.int': split_transpose,
    'aten.t.default': split_matrix_transpose,
    'aten.unsqueeze.default': split_unsqueeze,
    **rules(split_squeeze, (
        'aten.squeeze.default', 'aten.squeeze.dim', 'aten.squeeze.dims')),
    'aten.expand.default': split_expand,
    'aten.view_as_complex.default': split_view_as_complex,
    'aten.view_as_real.default': split_view_as_real,
}
