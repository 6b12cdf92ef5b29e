# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""Adaptive pooling: windows that follow from the sizes of input and output."""
from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np
import torch

from intradp_ros.split.calls.call import cut_rows
from intradp_ros.split.calls.site import follow, per_dim, Rule, Site, Split
from intradp_ros.split.local_operator import Kernel, Kind, Parameters
from intradp_ros.split.regions.region import Region, RowMap


def split_adaptive_pool(site: Site, spatial: int) -> Split | None:
    """
    Split adaptive pooling to more than one row; to a single row it is global.

    Output row `a` of `O` covers input rows ``floor(a H / O)`` to
    ``ceil((a + 1) H / O)`` of `H`.
    """
    lead = site.lead()
    if lead is None or not site.only_first_output():
        return None
    operand, dim = lead
    axis = dim - (len(site.shape(operand)) - spatial)
    if axis < 0:
        return follow(site, Kind.BLOCK, dim)
    sizes = per_dim(site.call.argument('output_size'), spatial)
    input_rows, rows = site.shape(operand)[dim], site.output_shape[dim]
    row = np.arange(rows)
    row_map = RowMap(row * input_rows // rows, -(-(row + 1) * input_rows // rows))

    def bind(region: Region, parameters: Parameters) -> Kernel:
        def pool(count: int) -> Kernel:
            size = [*sizes[:axis], count, *sizes[axis + 1:]]
            return site.call.replace(output_size=size).compile(parameters)

        if region.rows == rows:
            return site.call.compile(parameters)
        if input_rows % rows == 0:
            return pool(region.rows)
        start = row_map(region).start
        windows = [row_map(Region(a, a + 1)) for a in range(*region)]
        return _row_by_row(
            pool(1), dim, [Region(w.start - start, w.stop - start) for w in windows])

    return Split(Kind.BLOCK, dim, rows, site.maps(row_map, rows), bind)


def _row_by_row(pool: Kernel, dim: int, windows: Sequence[Region]) -> Kernel:
    """Pool windows of different heights one at a time."""
    def first(result: Any) -> torch.Tensor:
        return result if isinstance(result, torch.Tensor) else result[0]

    def kernel(inputs: Sequence[torch.Tensor]) -> Any:
        results = [pool((cut_rows(inputs[0], dim, *window),)) for window in windows]
        pooled = torch.cat([first(result) for result in results], dim)
        return pooled if isinstance(results[0], torch.Tensor) else (pooled, None)

    return kernel


RULES: dict[str, Rule] = {
    f'aten.{name}{n}d.default': partial(split_adaptive_pool, spatial=n)
    for n in (1, 2, 3)
    for name in ('adaptive_avg_pool', 'adaptive_max_pool', '_adaptive_avg_pool')
}
