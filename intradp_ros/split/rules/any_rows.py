# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""Operators that need all rows, and of whose output any rows may be kept."""
from __future__ import annotations

from intradp_ros.split.calls.kernels import kept
from intradp_ros.split.calls.site import Site, Split
from intradp_ros.split.local_operator import Kernel, Kind, Parameters
from intradp_ros.split.regions.region import Region, RowMap


def split_any_rows(site: Site, dim: int) -> Split | None:
    """
    Run an operator as a whole, and keep the rows of a region along `dim` of its outputs.

    For operators that cost little next to what follows them, such as the
    writing of points to a grid: what follows is local again, even if the rows
    of the operands were lost before.  None if there are no rows along `dim`.
    """
    rows = site.output_shape[dim]
    if rows < 2:
        return None
    maps = tuple(RowMap.whole(rows, site.rows[value]) for value in site.operator.inputs)

    def bind(region: Region, parameters: Parameters) -> Kernel:
        kernel = site.call.compile(parameters)
        return kernel if region.rows == rows else kept(kernel, dim, region.start, region.rows)

    return Split(Kind.GLOBAL, dim, rows, maps, bind)
