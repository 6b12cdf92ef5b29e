# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""Triangles of matrices: what is on one side of a diagonal."""
from __future__ import annotations

from intradp_ros.split.calls.site import follow, Rule, rules, Site, Split
from intradp_ros.split.local_operator import Kernel, Kind, Parameters
from intradp_ros.split.regions.region import Region, RowMap


def split_triangle(site: Site) -> Split | None:
    """Split along any dimension; within the matrices, a region has a diagonal of its own."""
    lead = site.lead()
    if lead is None:
        return None
    dim, rank = lead[1], len(site.output_shape)
    if dim < rank - 2:
        return follow(site, Kind.ELEMENT, dim)
    rows, diagonal = site.output_shape[dim], site.call.argument('diagonal')
    sign = 1 if dim == rank - 2 else -1

    def bind(region: Region, parameters: Parameters) -> Kernel:
        return site.call.replace(diagonal=diagonal + sign * region.start).compile(parameters)

    return Split(Kind.ELEMENT, dim, rows, site.maps(RowMap.identity(rows), rows), bind)


RULES: dict[str, Rule] = rules(split_triangle, ('aten.tril.default', 'aten.triu.default'))
