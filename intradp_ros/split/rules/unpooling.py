# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""Unpooling: values go back to where maximum pooling took them from."""
from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from math import prod

import torch

from intradp_ros.graph.operator_graph import ValueRef
from intradp_ros.split.calls.aligned import aligned_split
from intradp_ros.split.calls.kernels import cropped
from intradp_ros.split.calls.site import Rule, Site, Split
from intradp_ros.split.local_operator import Kernel, Kind, Parameters
from intradp_ros.split.regions.flat_index import recounted, Rows
from intradp_ros.split.regions.region import Region
from intradp_ros.split.regions.transposed_window import Spread
from intradp_ros.split.rules.pooling import pooling_window


def split_unpool(site: Site, spatial: int) -> Split | None:
    """
    Split unpooling by the indices of a maximum pooling.

    Any index is possible in general, but a row of indices that a pooling
    gave lies under one row of its windows.
    """
    values, indices = site.call.argument('self'), site.call.argument('indices')
    dim = site.split_dim(values)
    if dim is None or dim != site.split_dim(indices):
        return None
    axis = dim - (len(site.output_shape) - spatial)
    if axis < 0:
        return aligned_split(site, Kind.BLOCK, dim, lambda operand: dim)
    spread = _spread(site, indices, spatial, axis)
    if spread is None:
        return None
    inner, rows = prod(site.output_shape[dim + 1:]), site.output_shape[dim]

    def bind(region: Region, parameters: Parameters) -> Kernel:
        handed = spread.row_map(region)
        if region.rows == rows and handed.rows == spread.input_rows:
            return site.call.compile(parameters)
        if not handed:
            return _nothing(site, dim, region)
        reached = spread.reached(handed).intersect(Region(0, rows)).hull(region)
        size = list(site.output_shape[-spatial:])
        size[axis] = reached.rows
        kernel = site.call.replace(output_size=size).compile(parameters)
        kernel = cropped(kernel, dim, region.start - reached.start, region.rows, reached.rows)
        some = Rows(reached.rows, inner)
        return lambda x: kernel(
            (x[0], recounted(x[1], Rows(rows, inner), some, -reached.start)))

    return Split(Kind.BLOCK, dim, rows, (spread.row_map, spread.row_map), bind)


def _spread(site: Site, indices: ValueRef, spatial: int, axis: int) -> Spread | None:
    """Return how rows of indices spread over the output, or None if no pooling gave them."""
    producer = site.graph.producer.get(indices.value)
    if producer is None:
        return None
    pool = site.graph.operators[producer]
    if pool.target != f'aten.max_pool{spatial}d_with_indices.default':
        return None
    pooled = replace(site, operator=pool)
    if indices.value != pool.outputs[1] or (
            pooled.shape(pool.args[0])[-spatial:] != site.output_shape[-spatial:]):
        return None
    window = pooling_window(pooled, spatial, axis)
    return Spread(
        window.size, window.stride, window.before, window.dilation, window.output_rows,
        window.input_rows)


def _nothing(site: Site, dim: int, region: Region) -> Kernel:
    """Return a kernel for rows that no input row reaches."""
    shape = [*site.output_shape[:dim], region.rows, *site.output_shape[dim + 1:]]
    nothing = torch.zeros((), dtype=site.graph.values[site.operator.inputs[0]].dtype)

    def zeros(inputs: Sequence[torch.Tensor]) -> torch.Tensor:
        return nothing.new_zeros(shape)

    return zeros


RULES: dict[str, Rule] = {
    f'aten.max_unpool{n}d.default': partial(split_unpool, spatial=n) for n in (2, 3)}
