# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""The sizes and scales of an interpolation, and how its positions follow from them."""
from __future__ import annotations

from dataclasses import dataclass
from math import ceil

import torch

from intradp_ros.split.calls.call import Call

_NEAR = 8  # rows looked at around a position, at least; a cubic uses 4
_RADIUS = {'bilinear': 1, 'bicubic': 2, 'lanczos': 3}  # of filters against aliasing
_SCALE_NAMES = ('scales_d', 'scales_h', 'scales_w')


@dataclass(frozen=True)
class Resize:
    """The sizes and scales that an interpolation was called with, for each spatial dimension."""

    call: Call
    spatial: int
    axis: int

    def along(self, size: int, scale: float | None) -> Call:
        """Return the call with another output size (or scale, where it has that) on the axis."""
        return self._with(self._sizes(size, None), self._scales(scale, False))

    def probe(self, rows: int) -> Call:
        """Return the call for an input that has a single row in all other dimensions."""
        return self._with(self._sizes(rows, 1), self._scales(self.scale, True))

    @property
    def scale(self) -> float | None:
        """The scale that was given for the axis, or None where the sizes decide."""
        scales = self._given_scales()
        return scales[self.axis] if scales else None

    @property
    def aligned(self) -> bool:
        """Return whether the first and last rows of input and output coincide."""
        return self.call.has('align_corners') and self.call.argument('align_corners')

    def step(self, input_rows: int, rows: int) -> float:
        """Return how many input rows the position moves on for an output row."""
        if self.aligned:
            return (input_rows - 1) / max(1, rows - 1)
        return 1 / self.scale if self.scale else input_rows / rows

    def gives(self, rows: int, input_rows: int) -> bool:
        """Return whether the call makes that many rows of the input's."""
        sizes, scale = self.call.argument('output_size'), self.scale
        made = sizes[self.axis] if sizes is not None else int(input_rows * (scale or 0.0))
        return bool(made == rows)

    def positions(self, input_rows: int, rows: int) -> torch.Tensor:
        """Return the positions of output rows among the input rows, to within a row."""
        row = torch.arange(rows, dtype=torch.float64)
        step = self.step(input_rows, rows)
        return row * step if self.aligned else (row + 0.5) * step - 0.5

    def near(self, input_rows: int, rows: int) -> int:
        """Return how many rows around a position may count."""
        name = self.call.function.__name__
        radius = next((r for kind, r in _RADIUS.items() if kind in name), 0)
        return _NEAR + 2 * ceil(radius * self.step(input_rows, rows)) * self.filtered

    @property
    def filtered(self) -> bool:
        """Return whether a filter against aliasing widens with the step."""
        return '_aa' in self.call.function.__name__

    def lying(self) -> Resize:
        """Return what does to columns what this does to rows; ATen errs on single columns."""
        if self.axis == self.spatial - 1:
            return self
        sizes, scales = self.call.argument('output_size'), self._given_scales()
        turned = self._with(sizes and sizes[::-1], scales and scales[::-1])
        return Resize(turned, self.spatial, self.spatial - 1 - self.axis)

    def _sizes(self, rows: int, others: int | None) -> list[int] | None:
        sizes = self.call.argument('output_size')
        if sizes is None:
            return None
        return [rows if k == self.axis else others or size for k, size in enumerate(sizes)]

    def _given_scales(self) -> list[float | None] | None:
        if self.call.has('scale_factors'):
            factors = self.call.argument('scale_factors')
            return None if factors is None else list(factors)
        names = ('scales',) if self.spatial == 1 else _SCALE_NAMES[-self.spatial:]
        return [self.call.argument(name) for name in names]

    def _scales(self, along: float | None, single: bool) -> list[float | None] | None:
        scales = self._given_scales()
        if scales is None:
            return None
        unit = 1.0 if self.call.has('scale_factors') else None
        return [
            along if k == self.axis else unit if single else scale
            for k, scale in enumerate(scales)]

    def _with(self, sizes: list[int] | None, scales: list[float | None] | None) -> Call:
        if self.call.has('scale_factors'):
            return self.call.replace(output_size=sizes, scale_factors=scales)
        names = ('scales',) if self.spatial == 1 else _SCALE_NAMES[-self.spatial:]
        return self.call.replace(output_size=sizes, **dict(zip(names, scales or ())))
