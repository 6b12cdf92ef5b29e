# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""Maximum and average pooling with a sliding window."""
from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from math import prod

import torch

from intradp_ros.split.calls.call import Call
from intradp_ros.split.calls.kernels import padded, scaled
from intradp_ros.split.calls.site import follow, per_dim, Rule, Site, Split
from intradp_ros.split.local_operator import Kernel, Kind, Parameters
from intradp_ros.split.regions.flat_index import recounted, Rows
from intradp_ros.split.regions.region import Region
from intradp_ros.split.regions.sliding_window import Window


def split_max_pool(site: Site, spatial: int) -> Split | None:
    """
    Split maximum pooling; its padding is the lowest number there is.

    Rows that `ceil_mode` reads beyond the padding are padded like the rest.
    Indices, where they are read, count the elements of the whole input.
    """
    lead = site.lead()
    if lead is None:
        return None
    call, (operand, dim) = site.call, lead
    axis = dim - (len(site.shape(operand)) - spatial)
    if axis < 0:
        return follow(site, Kind.BLOCK, dim)
    window = pooling_window(site, spatial, axis)
    lowest = _lowest(site.graph.values[operand.value].dtype)
    inner = prod(site.shape(operand)[dim + 1:])

    def bind(region: Region, parameters: Parameters) -> Kernel:
        if window.is_all(region):
            return call.compile(parameters)
        before, after = window.missing(region)
        native = before if 0 <= before == after <= window.before else 0
        pads = before - native, after - native
        kernel = _padded_natively(call, spatial, axis, native).compile(parameters)
        kernel = padded(kernel, _one_pad(*pads, spatial, axis), lowest)
        if site.only_first_output():
            return kernel
        handed = window.row_map(region)
        padded_rows = Rows(sum(pads) + handed.rows, inner)
        return _counted_from(
            kernel, padded_rows, Rows(window.input_rows, inner), handed.start - pads[0])

    return Split(
        Kind.BLOCK, dim, window.output_rows, site.maps(window.row_map, window.output_rows), bind)


def _counted_from(kernel: Kernel, rows: Rows, whole: Rows, start: int) -> Kernel:
    """Let indices that `kernel` counts in some rows count in all, where these start at `start`."""
    def pool(inputs: Sequence[torch.Tensor]) -> tuple[torch.Tensor, torch.Tensor]:
        pooled, indices = kernel(inputs)
        return pooled, recounted(indices, rows, whole, start)

    return pool


def split_average_pool(site: Site, spatial: int) -> Split | None:
    """
    Split average pooling.

    Windows over a border may count fewer rows than their size; the kernel
    averages zero-padded full windows and scales those rows up.
    """
    lead = site.lead()
    if lead is None:
        return None
    call, (operand, dim) = site.call, lead
    axis = dim - (len(site.shape(operand)) - spatial)
    if axis < 0:
        return follow(site, Kind.BLOCK, dim)
    window = pooling_window(site, spatial, axis)
    counts_padding = call.argument('count_include_pad')
    dtype = site.graph.values[operand.value].dtype
    fixed_divisor = call.has('divisor_override') and call.argument('divisor_override') is not None

    def bind(region: Region, parameters: Parameters) -> Kernel:
        if window.is_all(region):
            return call.compile(parameters)
        kernel = _padded_natively(call, spatial, axis, 0).compile(parameters)
        kernel = padded(kernel, _one_pad(*window.missing(region), spatial, axis))
        if fixed_divisor:
            return kernel
        counted = [_counted_rows(window, row, counts_padding) for row in range(*region)]
        factors = [window.size / n for n in counted]
        return scaled(kernel, factors, spatial - 1 - axis, dtype)

    return Split(
        Kind.BLOCK, dim, window.output_rows, site.maps(window.row_map, window.output_rows), bind)


def pooling_window(site: Site, spatial: int, axis: int) -> Window:
    """Return the window of a pooling operator along one of its spatial dimensions."""
    sizes = per_dim(site.call.argument('kernel_size'), spatial)
    strides = per_dim(site.call.argument('stride') or sizes, spatial)
    before = per_dim(site.call.argument('padding'), spatial)[axis]
    dilation = site.call.argument('dilation') if site.call.has('dilation') else 1
    from_right = axis - spatial
    return Window(
        sizes[axis], strides[axis], before, per_dim(dilation, spatial)[axis],
        site.shape(site.operator.args[0])[from_right], site.output_shape[from_right])


def _counted_rows(window: Window, row: int, counts_padding: bool) -> int:
    """Return how many rows ATen divides by along the split dimension."""
    start, stop = window.span(Region(row, row + 1))
    if counts_padding:
        return min(stop, window.input_rows + window.before) - start
    return min(stop, window.input_rows) - max(start, 0)


def _padded_natively(call: Call, spatial: int, axis: int, rows: int) -> Call:
    padding = per_dim(call.argument('padding'), spatial)
    padding[axis] = rows
    return call.replace(padding=padding)


def _one_pad(before: int, after: int, spatial: int, axis: int) -> Sequence[tuple[int, int]]:
    return [(before, after)] + [(0, 0)] * (spatial - 1 - axis)


def _lowest(dtype: torch.dtype) -> float:
    return float('-inf') if dtype.is_floating_point else torch.iinfo(dtype).min


RULES: dict[str, Rule] = {
    f'aten.{name}.default': partial(rule, spatial=n)
    for n in (1, 2, 3)
    for name, rule in (
        (f'max_pool{n}d', split_max_pool),
        (f'max_pool{n}d_with_indices', split_max_pool),
        (f'avg_pool{n}d', split_average_pool))
}
