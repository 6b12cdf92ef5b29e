# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""Reshapes that keep the rows in order: merging, dividing and regrouping dimensions."""
from __future__ import annotations

from itertools import accumulate
from math import gcd, prod
from operator import mul

import numpy as np
import torch

from intradp_ros.split.calls.call import Call
from intradp_ros.split.calls.kernels import cropped
from intradp_ros.split.calls.site import Rule, rules, Site, Split
from intradp_ros.split.local_operator import Kernel, Kind, Parameters
from intradp_ros.split.regions.region import Region, RowMap
from intradp_ros.split.rules.any_rows import split_any_rows


def split_reshape(site: Site) -> Split | None:
    """
    Split a row-major reshape where as many elements lead the split dimension as before.

    Counted in elements behind those leading dimensions, an input row holds
    ``[i * n, (i + 1) * n)`` and an output row ``[o * m, (o + 1) * m)``; so an
    output row needs the input rows that overlap it.  (Flattening height and
    width makes each row several; dividing them again joins several to one.)
    Where other elements lead, all rows are needed for any of the output.
    """
    lead = site.lead()
    if lead is None:
        return None
    operand, dim = lead
    shape, output = site.shape(operand), site.output_shape
    new_dim = _same_start(shape, dim, output)
    if new_dim is None:
        return _any_rows(site, prod(shape[dim + 1:]))
    inner, new_inner = prod(shape[dim + 1:]), prod(output[new_dim + 1:])
    rows = output[new_dim]
    row = np.arange(rows)
    row_map = RowMap(row * new_inner // inner, -(-(row + 1) * new_inner // inner))
    source = site.operator.args[0]

    def bind(region: Region, parameters: Parameters) -> Kernel:
        part = [*output[:new_dim], region.rows, *output[new_dim + 1:]]
        handed = row_map(region)
        if handed.rows * inner == region.rows * new_inner:
            return Call(torch.ops.aten.reshape.default, (source, part), {}).compile(parameters)
        # cut at the finest grain that input and output rows share
        grain = gcd(inner, new_inner)
        fine = [*output[:new_dim], handed.rows * inner // grain, grain]
        flat = Call(torch.ops.aten.reshape.default, (source, fine), {}).compile(parameters)
        start = (region.start * new_inner - handed.start * inner) // grain
        count = region.rows * new_inner // grain
        kernel = cropped(flat, new_dim, start, count, fine[new_dim])
        return lambda x: kernel(x).reshape(part)

    return Split(Kind.ELEMENT, new_dim, rows, site.maps(row_map, rows), bind)


def _same_start(shape: tuple[int, ...], dim: int, output: tuple[int, ...]) -> int | None:
    """Return the output dimension of several rows that as many elements lead as `dim`."""
    leading = prod(shape[:dim])
    starts = accumulate((1, *output[:-1]), mul)
    return next(
        (k for k, start in enumerate(starts) if start == leading and output[k] > 1), None)


def _any_rows(site: Site, inner: int) -> Split | None:
    """
    Keep any rows along the first dimension whose steps are no longer than those of the rows.

    None if that is the last one of a list of vectors: a linear layer contracts these features.
    """
    output = site.output_shape
    steps = [prod(output[k + 1:]) for k in range(len(output))]
    dim = next(k for k, step in enumerate(steps) if step <= inner and (output[k] > 1 or step == 1))
    features = len(output) <= 2 and dim == len(output) - 1
    return None if features else split_any_rows(site, dim)


RULES: dict[str, Rule] = rules(split_reshape, (
    'aten._reshape_copy.default',
    'aten._unsafe_view.default',
    'aten.flatten.using_ints',
    'aten.reshape.default',
    'aten.unflatten.int',
    'aten.view.default',
    'aten.view_copy.default',
))
