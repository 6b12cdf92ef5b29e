# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""Blocks under a sliding window as columns, and columns added up to an image."""
from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch

from intradp_ros.split.calls.kernels import cropped, padded, unread
from intradp_ros.split.calls.site import follow, normal_dim, per_dim, Rule, Site, Split, unchanged
from intradp_ros.split.local_operator import Kernel, Kind, Parameters
from intradp_ros.split.regions.region import Region, RowMap
from intradp_ros.split.regions.sliding_window import Window
from intradp_ros.split.regions.transposed_window import Spread

_HEIGHT, _COLUMNS = 2, 2


def split_unfold(site: Site) -> Split | None:
    """Split ``Tensor.unfold``: the rows under a window of `size` go to a new last dimension."""
    lead = site.lead()
    if lead is None:
        return None
    operand, dim = lead
    if normal_dim(site.call.argument('dimension'), len(site.shape(operand))) != dim:
        return follow(site, Kind.BLOCK, dim)
    size, step = site.call.argument('size'), site.call.argument('step')
    rows = site.output_shape[dim]
    first = np.arange(rows) * step
    row_map = RowMap(first, first + size)
    return Split(Kind.BLOCK, dim, rows, site.maps(row_map, rows), unchanged(site))


def split_difference(site: Site) -> Split | None:
    """Split differences of neighbours, taken `n` times over."""
    lead = site.lead()
    if lead is None or len(site.operator.inputs) > 1 or site.operator.parameters:
        return None
    operand, dim = lead
    if normal_dim(site.call.argument('dim'), len(site.shape(operand))) != dim:
        return follow(site, Kind.BLOCK, dim)
    rows, reach = site.output_shape[dim], site.call.argument('n') + 1
    row_map = RowMap(np.arange(rows), np.arange(rows) + reach)
    return Split(Kind.BLOCK, dim, rows, site.maps(row_map, rows), unchanged(site))


@dataclass(frozen=True)
class _Blocks:
    """A window over the height of an image, at each place of which there are `wide` blocks."""

    window: Window
    wide: int

    @classmethod
    def of(cls, site: Site, height: int, width: int, columns: int) -> _Blocks | None:
        """Read the settings of a call for an image of a size; None if it has other columns."""
        (size, across), (stride, step), (before, left_right), (dilation, spread) = (
            per_dim(site.call.argument(name), 2)
            for name in ('kernel_size', 'stride', 'padding', 'dilation'))
        high = (height + 2 * before - dilation * (size - 1) - 1) // stride + 1
        wide = (width + 2 * left_right - spread * (across - 1) - 1) // step + 1
        if wide < 1 or high * wide != columns:
            return None
        return cls(Window(size, stride, before, dilation, height, high), wide)

    def rows(self, columns: Region) -> Region:
        """Return the places of the window that some columns belong to."""
        return Region(columns.start // self.wide, -(-columns.stop // self.wide))


def split_into_columns(site: Site) -> Split | None:
    """Split an unfolding of an image by its height: columns follow each other row by row."""
    lead = site.lead()
    if lead is None or len(site.shape(lead[0])) != 4:
        return None
    operand, dim = lead
    if dim != _HEIGHT:
        return follow(site, Kind.BLOCK, 0) if dim == 0 else None
    rows = site.output_shape[_COLUMNS]
    height, width = site.shape(operand)[2:]
    blocks = _Blocks.of(site, height, width, rows)
    if blocks is None:
        return None
    by_row = blocks.window.row_map
    place = np.arange(rows) // blocks.wide
    row_map = RowMap(by_row.first[place], by_row.last[place])
    left_right = per_dim(site.call.argument('padding'), 2)[1]

    def bind(region: Region, parameters: Parameters) -> Kernel:
        if region.rows == rows and row_map(region).rows == blocks.window.input_rows:
            return site.call.compile(parameters)
        places = blocks.rows(region)
        kernel = padded(
            site.call.replace(padding=[0, left_right]).compile(parameters),
            [blocks.window.missing(places), (0, 0)])
        if not row_map(region):
            kernel = unread(kernel, site.no_rows(operand, dim))
        start = region.start - places.start * blocks.wide
        return cropped(kernel, _COLUMNS, start, region.rows, places.rows * blocks.wide)

    return Split(Kind.BLOCK, _COLUMNS, rows, site.maps(row_map, rows), bind)


def split_from_columns(site: Site) -> Split | None:
    """Split a folding to an image: a row is a sum over all windows that lie on it."""
    lead = site.lead()
    if lead is None or len(site.shape(lead[0])) != 3:
        return None
    operand, dim = lead
    if dim != _COLUMNS:
        return follow(site, Kind.BLOCK, 0) if dim == 0 else None
    rows, width = site.output_shape[2:]
    blocks = _Blocks.of(site, rows, width, site.shape(operand)[_COLUMNS])
    if blocks is None:
        return None
    row_map = _columns_over(blocks, rows)
    left_right = per_dim(site.call.argument('padding'), 2)[1]

    def bind(region: Region, parameters: Parameters) -> Kernel:
        handed = row_map(region)
        if region.rows == rows and handed.rows == site.shape(operand)[dim]:
            return site.call.compile(parameters)
        shape = [*site.output_shape[:2], region.rows, width]
        if not handed:
            nothing = site.no_rows(operand, dim).new_zeros(())
            return lambda x: nothing.expand(shape).contiguous()
        span = blocks.window.span(blocks.rows(handed))
        kernel = site.call.replace(
            output_size=[span.rows, width], padding=[0, left_right]).compile(parameters)
        return _shifted(kernel, span.start - region.start, region.stop - span.stop)

    return Split(Kind.BLOCK, _HEIGHT, rows, site.maps(row_map, rows), bind)


def _columns_over(blocks: _Blocks, rows: int) -> RowMap:
    """Return the columns of the windows that touch each row of the image."""
    window = blocks.window
    places = Spread(window.size, window.stride, window.before, window.dilation,
                    window.output_rows, rows).row_map
    return RowMap(places.first * blocks.wide, places.last * blocks.wide)


def _shifted(kernel: Kernel, before: int, after: int) -> Kernel:
    """Pad the height of a result with zeros, or cut it where that is negative."""
    def shift(inputs: Sequence[torch.Tensor]) -> torch.Tensor:
        return torch.constant_pad_nd(kernel(inputs), [0, 0, before, after])

    return shift if before or after else kernel


RULES: dict[str, Rule] = {
    'aten.diff.default': split_difference,
    'aten.unfold.default': split_unfold,
    'aten.im2col.default': split_into_columns,
    'aten.col2im.default': split_from_columns,
}
