# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""Up- and down-sampling: nearest, linear and cubic, any size, in 1 to 3 dimensions."""
from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch

from intradp_ros.core.limits import MAX_TAPS
from intradp_ros.split.calls.kernels import cropped
from intradp_ros.split.calls.site import follow, Rule, Site, Split
from intradp_ros.split.local_operator import Kernel, Kind, Parameters
from intradp_ros.split.regions.region import Region, RowMap
from intradp_ros.split.rules.resize import Resize

_ROUNDING = 4  # weights of so many units in the last place of 1 are none


@dataclass(frozen=True)
class _Taps:
    """Rows that make up each output row (`rows`), and their shares (`weights`)."""

    rows: torch.Tensor
    weights: torch.Tensor

    def to(self, device: torch.device) -> _Taps:
        return _Taps(self.rows.to(device), self.weights.to(device))

    @property
    def row_map(self) -> RowMap:
        return RowMap(self.rows.min(dim=1).values.numpy(), self.rows.max(dim=1).values.numpy() + 1)


def split_upsampling(site: Site, spatial: int, nearest: bool) -> Split | None:
    """
    Split an interpolation; which rows count, and how much, is asked of ATen itself.

    Where rows are multiplied by a power of two, the positions of the rows are
    exact in any float format: the kernel interpolates the rows at hand and
    crops.  Elsewhere it combines rows with the weights of the unsplit
    operator, and leaves the other dimensions to ATen.
    """
    lead = site.lead()
    if lead is None:
        return None
    operand, dim = lead
    axis = dim - (len(site.shape(operand)) - spatial)
    if axis < 0:
        return follow(site, Kind.BLOCK, dim)
    dtype = site.graph.values[operand.value].dtype
    if not nearest and dtype not in (torch.float32, torch.float64):
        return None
    resize = Resize(site.call, spatial, axis)
    input_rows, rows = site.shape(operand)[dim], site.output_shape[dim]
    if resize.filtered and site.output_shape[-1] == 1:
        return None  # ATen gives one row everywhere, and only as a whole the same one
    if not resize.gives(rows, input_rows) or not (
            nearest or resize.near(input_rows, rows) * (input_rows + rows) <= MAX_TAPS):
        return None
    taps = (_nearest_taps if nearest else _linear_taps)(resize, input_rows, rows, dtype)
    row_map = taps.row_map
    factor = _exact_factor(resize, input_rows, rows)

    def bind(region: Region, parameters: Parameters) -> Kernel:
        handed = row_map(region)
        if region.rows == rows and handed.rows == input_rows:
            return site.call.compile(parameters)
        if factor:
            kernel = resize.along(handed.rows * factor, resize.scale).compile(parameters)
            start = region.start - handed.start * factor
            return cropped(kernel, dim, start, region.rows, handed.rows * factor)
        unit = 1.0 if site.call.has('scale_factors') else None
        part = _Taps(taps.rows[slice(*region)] - handed.start, taps.weights[slice(*region)])
        single_column = resize.filtered and axis == spatial - 1 and region.rows == 1
        if single_column:
            part = _Taps(part.rows.repeat(2, 1), part.weights.repeat(2, 1))
        others = resize.along(len(part.rows), unit).compile(parameters)
        kernel = _combined(others, part, dim, spatial - 1 - axis)
        return cropped(kernel, dim, 0, 1, 2) if single_column else kernel

    return Split(Kind.BLOCK, dim, rows, site.maps(row_map, rows), bind)


def _exact_factor(resize: Resize, input_rows: int, rows: int) -> int:
    """Return by which power of two rows are multiplied; 0 if they are not."""
    factor = rows // input_rows
    if resize.filtered or resize.aligned or factor * input_rows != rows:
        return 0
    if factor & (factor - 1):
        return 0
    return factor if resize.scale in (None, float(factor)) else 0


def _nearest_taps(
        resize: Resize, input_rows: int, rows: int, dtype: torch.dtype) -> _Taps:
    """Find the row that each output row copies, by resizing row numbers."""
    exact = torch.float64 if dtype == torch.float64 else torch.float32
    numbers = torch.arange(input_rows, dtype=exact).view(1, -1)
    taken = _run_probe(resize, numbers, rows).long().view(rows, 1)
    return _Taps(taken, torch.ones(rows, 1, dtype=exact))


def _linear_taps(
        resize: Resize, input_rows: int, rows: int, dtype: torch.dtype) -> _Taps:
    """
    Find the weights of the rows near each output row's position.

    Of `n` rows around a position each has an image of its own in the probe,
    and so shows its weight: image c has ones in rows c, c + n, c + 2 n, ...
    """
    count = resize.near(input_rows, rows)
    combs = (torch.arange(input_rows) % count == torch.arange(count)[:, None]).to(dtype)
    weights = _run_probe(resize, combs, rows).view(count, rows).T
    start = (resize.positions(input_rows, rows).floor().long() - count // 2 + 1)
    near = start.clamp(0, max(0, input_rows - count))[:, None] + torch.arange(count)
    near_weights = weights.gather(1, near % count)
    near_weights[near_weights.abs() <= _ROUNDING * torch.finfo(dtype).eps] = 0.0
    count = int((near_weights != 0).sum(dim=1).max())
    strongest = near_weights.abs().topk(count, dim=1).indices
    shares, taken = near_weights.gather(1, strongest), near.gather(1, strongest)
    # a tap without weight repeats a row that counts
    return _Taps(torch.where(shares != 0, taken, taken[:, :1]), shares)


def _run_probe(resize: Resize, numbers: torch.Tensor, output_rows: int) -> torch.Tensor:
    """Resize some rows of numbers, shape (count, rows), as images that are one number wide."""
    resize = resize.lying() if resize.filtered else resize
    shape = [numbers.shape[0], 1] + [1] * resize.spatial
    shape[2 + resize.axis] = numbers.shape[1]
    result: torch.Tensor = resize.probe(output_rows).compile({})((numbers.reshape(shape),))
    return result


def _combined(kernel: Kernel, taps: _Taps, dim: int, trailing: int) -> Kernel:
    """Combine rows by their weights, then call `kernel` on them for the other dimensions."""
    taps = taps.to(torch.empty(0).device)  # where tensors are made now
    if taps.rows.shape[1] == 1:
        only = taps.rows[:, 0].contiguous()
        return lambda x: kernel((x[0].index_select(dim, only),))
    indices = [column.contiguous() for column in taps.rows.T]
    weights = [column.reshape(-1, *[1] * trailing) for column in taps.weights.T]

    def combine(inputs: Sequence[torch.Tensor]) -> Any:
        rows = inputs[0].index_select(dim, indices[0]) * weights[0]
        for index, weight in zip(indices[1:], weights[1:]):
            rows.addcmul_(inputs[0].index_select(dim, index), weight)
        return kernel((rows,))

    return combine


def _targets(name: str, overloads: Sequence[str] = ('vec', 'default')) -> list[str]:
    return [f'aten.{name}.{overload}' for overload in overloads]


RULES: dict[str, Rule] = {
    target: partial(split_upsampling, spatial=spatial, nearest=nearest)
    for name, spatial, nearest in (
        ('upsample_nearest1d', 1, True),
        ('upsample_nearest2d', 2, True),
        ('upsample_nearest3d', 3, True),
        ('_upsample_nearest_exact1d', 1, True),
        ('_upsample_nearest_exact2d', 2, True),
        ('_upsample_nearest_exact3d', 3, True),
        ('upsample_linear1d', 1, False),
        ('upsample_bilinear2d', 2, False),
        ('upsample_trilinear3d', 3, False),
        ('upsample_bicubic2d', 2, False),
        ('_upsample_bilinear2d_aa', 2, False),
        ('_upsample_bicubic2d_aa', 2, False),
        ('_upsample_lanczos2d_aa', 2, False))
    for target in _targets(name)
}
