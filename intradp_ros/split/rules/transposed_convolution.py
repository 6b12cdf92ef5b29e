# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""Transposed convolution in 1 to 3 dimensions."""
from __future__ import annotations

from intradp_ros.split.calls.kernels import cropped, padded, unread
from intradp_ros.split.calls.site import follow, per_dim, Rule, Site, Split
from intradp_ros.split.local_operator import Kernel, Kind, Parameters
from intradp_ros.split.regions.region import Region
from intradp_ros.split.regions.transposed_window import Spread

_BATCH = -2


def split_transposed(site: Site) -> Split | None:
    """
    Split a transposed convolution along a spatial dimension, or along the batch.

    The kernel spreads the rows at hand over all the rows that they reach and
    crops; output rows that no input row reaches hold the bias, and come from
    rows of zeros.
    """
    lead = site.lead()
    if lead is None:
        return None
    call, (operand, dim) = site.call, lead
    kernel_size = site.shape(call.argument('weight'))[2:]
    spatial = len(kernel_size)
    axis = dim - (len(site.shape(operand)) - spatial)
    if axis < 0:
        return follow(site, Kind.BLOCK, dim) if axis == _BATCH else None
    settings = {
        name: per_dim(call.argument(name), spatial)
        for name in ('stride', 'padding', 'output_padding', 'dilation')}
    rows = site.output_shape[dim]
    spread = Spread(
        kernel_size[axis], settings['stride'][axis], settings['padding'][axis],
        settings['dilation'][axis], site.shape(operand)[dim], rows)

    def bind(region: Region, parameters: Parameters) -> Kernel:
        extended, handed = spread.extended(region), spread.row_map(region)
        if region.rows == rows and handed.rows == spread.input_rows:
            return call.compile(parameters)
        reached = spread.reached(extended)
        above, below = region.start - reached.start, reached.stop - region.stop
        cut = min(above, below)
        kernel = call.replace(
            padding=_put(settings['padding'], axis, cut),
            output_padding=_put(settings['output_padding'], axis, 0)).compile(parameters)
        start = handed.start if handed else extended.start
        zeros = (start - extended.start, extended.stop - start - handed.rows)
        kernel = padded(kernel, [zeros] + [(0, 0)] * (spatial - 1 - axis))
        kernel = cropped(kernel, dim, above - cut, region.rows, reached.rows - 2 * cut)
        return kernel if handed else unread(kernel, site.no_rows(operand, dim))

    return Split(Kind.BLOCK, dim, rows, site.maps(spread.row_map, rows), bind)


def _put(items: list[int], k: int, item: int) -> list[int]:
    return [*items[:k], item, *items[k + 1:]]


RULES: dict[str, Rule] = {
    'aten.conv_transpose1d.default': split_transposed,
    'aten.conv_transpose2d.input': split_transposed,
    'aten.conv_transpose3d.input': split_transposed,
}
