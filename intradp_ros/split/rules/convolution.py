# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""Convolution in 1 to 3 dimensions: stride, dilation, groups, any padding."""
from __future__ import annotations

from math import prod

from intradp_ros.graph.operator_graph import resolve_target, ValueRef
from intradp_ros.split.calls.call import Call, Implemented
from intradp_ros.split.calls.kernels import cropped, padded, unread
from intradp_ros.split.calls.site import follow, per_dim, Rule, rules, Site, Split
from intradp_ros.split.local_operator import Kernel, Kind, Parameters
from intradp_ros.split.regions.region import Region
from intradp_ros.split.regions.sliding_window import Window
from intradp_ros.split.rules.transposed_convolution import split_transposed

_BATCH = -2  # as spatial dimensions count from 0
#: Multiplications that take no longer than the copy of an element.
COPY_MULTIPLICATIONS = 8


def split_convolution(site: Site) -> Split | None:
    """
    Split a convolution along a spatial dimension, or along the batch.

    Rows inside the border need no padding.  Those at one border are padded by
    the convolution itself, at both ends: what it makes of the other end is
    cut off.  Where that is not possible, or dearer than a copy, they are padded
    before.
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
    strides = per_dim(call.argument('stride'), spatial)
    dilations = per_dim(call.argument('dilation'), spatial)
    pads = _pads(call, kernel_size, dilations)
    rows = site.output_shape[dim]
    window = Window(
        kernel_size[axis], strides[axis], pads[axis][0], dilations[axis],
        site.shape(operand)[dim], rows)
    explicit, most = _with_numeric_padding(site), _most_excess(site, operand, dim)

    def bind(region: Region, parameters: Parameters) -> Kernel:
        if window.is_all(region):
            return call.compile(parameters)
        handed = window.row_map(region)
        excess = most * handed.rows if isinstance(parameters, Implemented) else 0
        ends, skipped, made = _ends(window, region, excess)
        around = [*pads[:axis], ends, *pads[axis + 1:]]
        native = [before if before == after >= 0 else 0 for before, after in around]
        fed = handed.rows + sum(ends) - 2 * native[axis]
        kernel = explicit.replace(padding=native).compile(parameters, fed)
        kernel = cropped(padded(kernel, [
            (before - own, after - own) for own, (before, after) in zip(native, around)]),
            dim, skipped, region.rows, made)
        return kernel if handed else unread(kernel, site.no_rows(operand, dim))

    return Split(Kind.BLOCK, dim, rows, site.maps(window.row_map, rows), bind)


def _ends(window: Window, region: Region, excess: float) -> tuple[tuple[int, int], int, int]:
    """Return the rows to pad at both ends, output rows to skip then, and those that are made."""
    alike = window.padded_alike(region)
    if alike and alike.made - region.rows <= excess:
        return (alike.padding, alike.padding), alike.skipped, alike.made
    return window.missing(region), 0, region.rows


def _most_excess(site: Site, operand: ValueRef, dim: int) -> float:
    """
    Return how many output rows may be made in excess, for each input row that is not copied so.

    Only of a single image: there rows of a kernel variant's result are one block
    of memory, and cutting some off is free.
    """
    given, wanted = site.shape(operand), site.output_shape
    weight = site.shape(site.call.argument('weight'))
    if len(given) != len(weight) or given[0] != 1:
        return 0.0
    copied, multiplied = (prod(shape[:dim] + shape[dim + 1:]) for shape in (given, wanted))
    return COPY_MULTIPLICATIONS * copied / max(1, multiplied * prod(weight[1:]))


def split_any_convolution(site: Site) -> Split | None:
    """Split ``aten.convolution``, which may be transposed."""
    rule = split_transposed if site.call.argument('transposed') else split_convolution
    return rule(site)


def _pads(
        call: Call, kernel_size: tuple[int, ...], dilations: list[int]) -> list[tuple[int, int]]:
    """Return padding before and after for each spatial dimension, as numbers."""
    padding = call.argument('padding')
    if padding == 'valid':
        return [(0, 0)] * len(kernel_size)
    if padding == 'same':
        totals = [d * (k - 1) for d, k in zip(dilations, kernel_size)]
        return [(total // 2, total - total // 2) for total in totals]
    return [(p, p) for p in per_dim(padding, len(kernel_size))]


def _with_numeric_padding(site: Site) -> Call:
    """Return the call by the overload that takes padding as numbers."""
    target = site.operator.target
    if not target.endswith('.padding'):
        return site.call
    function = resolve_target(target.replace('.padding', '.default'))
    return Call(function, site.call.args, site.call.kwargs)


RULES: dict[str, Rule] = {
    **rules(split_convolution, (
        f'aten.conv{n}d.{overload}' for n in (1, 2, 3) for overload in ('default', 'padding'))),
    'aten.convolution.default': split_any_convolution,
}
