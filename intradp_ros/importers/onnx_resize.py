# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""
ONNX's Resize and Upsample in all their forms, by the definition of the operators.

The definition (https://onnx.ai/onnx/operators/onnx__Resize.html) resizes one
dimension after the other, and of each an element is a weighted sum of a few.
Where PyTorch's `interpolate` computes the same sums it is used, because it can
be split by rows; the sums themselves are computed elsewhere.
"""
from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
import math
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import nn

Array = npt.NDArray[Any]
#: Where operators stand that this module defines: no other package's.
DOMAIN = 'intradp_ros'
RESIZED = 'Resized'
_MODES = ('nearest', 'linear', 'cubic')
_COORDINATES = ('half_pixel', 'half_pixel_symmetric', 'pytorch_half_pixel', 'align_corners',
                'asymmetric', 'tf_half_pixel_for_nn', 'tf_crop_and_resize')
_ROUNDINGS: Mapping[str, Callable[[Array], Array]] = {
    'round_prefer_floor': lambda x: np.ceil(x - 0.5), 'round_prefer_ceil': lambda x: np.floor(
        x + 0.5), 'floor': np.floor, 'ceil': np.ceil}
_POLICIES = ('stretch', 'not_larger', 'not_smaller')
#: Elements that a sum has at most where they are taken one after the other.
_FEW_TAPS = 4


class ResizeError(ValueError):
    """A Resize that has no such form; the text says what is wrong with it."""


@dataclass(frozen=True)
class Resize:
    """One Resize: a tensor's shape, and what the operator says (names are ONNX's)."""

    shape: tuple[int, ...]
    axes: tuple[int, ...] = ()
    scales: tuple[float, ...] = ()
    sizes: tuple[int, ...] = ()
    roi: tuple[float, ...] = ()
    mode: str = 'nearest'
    coordinate_transformation_mode: str = 'half_pixel'
    nearest_mode: str = 'round_prefer_floor'
    cubic_coeff_a: float = -0.75
    exclude_outside: int = 0
    extrapolation_value: float = 0.0
    antialias: int = 0
    keep_aspect_ratio_policy: str = 'stretch'

    def __post_init__(self) -> None:
        rank = len(self.shape)
        for name, value, choices in (
                ('mode', self.mode, _MODES), ('nearest_mode', self.nearest_mode, (*_ROUNDINGS,)),
                ('coordinate_transformation_mode', self.coordinate_transformation_mode,
                 _COORDINATES),
                ('keep_aspect_ratio_policy', self.keep_aspect_ratio_policy, _POLICIES)):
            if value not in choices:
                raise ResizeError(f'{name} {value!r} is none of {", ".join(choices)}')
        object.__setattr__(self, 'axes', tuple(a % rank for a in self.axes) or (*range(rank),))
        if bool(self.scales) == bool(self.sizes):
            raise ResizeError('it has neither scales nor sizes, or both')
        if len(self.scales or self.sizes) != len(self.axes):
            raise ResizeError(f'{len(self.scales or self.sizes)} scales or sizes for '
                              f'{len(self.axes)} dimensions')
        if min(self.scales or self.sizes) <= 0:
            raise ResizeError('scales and sizes must be above 0')
        if self._crops and len(self.roi) != 2 * len(self.axes):
            raise ResizeError(f'tf_crop_and_resize needs a roi of {2 * len(self.axes)} numbers')
        if self.antialias and self.mode == 'nearest':
            raise ResizeError('nearest has no antialias')

    @property
    def _crops(self) -> bool:
        return self.coordinate_transformation_mode == 'tf_crop_and_resize'

    def targets(self) -> list[tuple[int, float]]:
        """Return for each of `axes` the size after, and the scale."""
        before = [self.shape[axis] for axis in self.axes]
        if self.scales:
            return [(math.floor(np.float32(scale) * np.float32(size)), scale)
                    for scale, size in zip(self.scales, before)]
        scales = [after / size for after, size in zip(self.sizes, before)]
        if self.keep_aspect_ratio_policy == 'stretch':
            return [*zip(self.sizes, scales)]
        one = min(scales) if self.keep_aspect_ratio_policy == 'not_larger' else max(scales)
        return [(math.floor(one * size + 0.5), one) for size in before]

    @property
    def result(self) -> tuple[int, ...]:
        """Return the shape after."""
        after = [*self.shape]
        for axis, (size, _) in zip(self.axes, self.targets()):
            after[axis] = size
        return tuple(after)

    def sums(self) -> dict[int, Sums]:
        """Return the sums along each dimension that changes."""
        found = {}
        for place, (axis, (after, scale)) in enumerate(zip(self.axes, self.targets())):
            span = (self.roi[place], self.roi[place + len(self.axes)]) if self._crops else (0., 1.)
            if scale != 1 or after != self.shape[axis] or span != (0.0, 1.0):
                found[axis] = self._sums(self.shape[axis], after, scale, span)
        return found

    def _sums(self, size: int, after: int, scale: float, span: tuple[float, float]) -> Sums:
        where = self._coordinates(size, after, scale, span)
        outside = (where < 0) | (where > size - 1) if self._crops else np.zeros(after, bool)
        either = None
        if self.mode == 'nearest':
            round_to = _ROUNDINGS[self.nearest_mode]
            single = self._coordinates(size, after, scale, span, np.float32).astype(np.float64)
            # How runtimes round a symmetric one is not known.
            symmetric = self.coordinate_transformation_mode == 'half_pixel_symmetric'
            places = round_to(where if symmetric else single)[:, None]
            weights = np.ones((after, 1))
            either = np.stack([round_to(x).clip(0, size - 1) for x in (where, single)], 1)
        else:
            first = np.floor(where)
            reach = 1 if self.mode == 'linear' else 2
            narrow = min(scale, 1.0) if self.antialias else 1.0
            count = math.ceil(reach / narrow)
            offsets = np.arange(1 - count, count + 1)
            apart = np.abs(offsets - (where - first)[:, None]) * narrow
            weights = np.clip(1 - apart, 0, None) if reach == 1 else self._cubic(apart)
            if self.antialias:
                weights /= weights.sum(1, keepdims=True)
            places = first[:, None] + offsets
        if self.exclude_outside:
            weights = np.where((places < 0) | (places >= size), 0.0, weights)
            total = weights.sum(1, keepdims=True)
            weights /= np.where(total == 0, 1.0, total)
        return Sums(places.clip(0, size - 1).astype(np.int64), weights, outside, size, either)

    def _coordinates(self, size: int, after: int, scale: float, span: tuple[float, float],
                     number: Any = np.float64) -> Any:
        """Return where the elements after the resize lie among those before it."""
        n: Any = np.arange(after).astype(number)
        mode, scale, last = self.coordinate_transformation_mode, number(scale), number(size - 1)
        half = number(0.5)
        if mode == 'align_corners':
            return n * last / number(after - 1) if after > 1 else n
        if mode == 'asymmetric':
            return n / scale
        if mode == 'tf_half_pixel_for_nn':
            return (n + half) / scale
        if mode == 'tf_crop_and_resize':
            start, end = map(number, span)
            if after == 1:
                return n + half * (start + end) * last
            return start * last + n * (end - start) * last / number(after - 1)
        if mode == 'pytorch_half_pixel' and after == 1:
            return n
        found: Array = (n + half) / scale - half
        if mode == 'half_pixel_symmetric':
            found += number(size / 2 * (1 - after / (float(scale) * size)))
        return found

    def _cubic(self, x: Array) -> Array:
        """Return Keys' kernel at distances."""
        a = self.cubic_coeff_a
        near = ((a + 2) * x - (a + 3)) * x * x + 1
        far = ((a * x - 5 * a) * x + 8 * a) * x - 4 * a
        return np.where(x <= 1, near, np.where(x < 2, far, 0.0))


@dataclass(frozen=True)
class Sums:
    """
    Weighted sums along a dimension of `size` elements.

    The nth is of the elements `places[n]` by `weights[n]`; where `outside` it
    is a value of its own.  Of the nearest element, `either[n]` are those that
    coordinates in double and in single precision choose: ONNX does not say
    which, its evaluator computes in the one and runtimes in the other.
    """

    places: Array
    weights: Array
    outside: Array
    size: int
    either: Array | None = None

    def of(self, values: Array) -> Array:
        """Return the sums of a vector."""
        found: Array = (values[self.places] * self.weights).sum(1)
        return found

    @property
    def matrix(self) -> Array:
        """Return the sums as a matrix (after, before)."""
        matrix = np.zeros((len(self.places), self.size))
        np.add.at(matrix, (np.arange(len(self.places))[:, None], self.places), self.weights)
        return matrix


class Summed(nn.Module):
    """A Resize by its sums, one dimension after the other."""

    def __init__(self, resize: Resize) -> None:
        super().__init__()
        self.axes = []
        self.value = resize.extrapolation_value
        for axis, sums in resize.sums().items():
            self.axes.append(axis)
            if sums.places.shape[1] <= _FEW_TAPS:
                self.register_buffer(f'places_{axis}', torch.from_numpy(sums.places.T.copy()))
                weights = sums.weights.T.copy()
            else:
                weights = sums.matrix
            plain = sums.weights.shape[1] == 1 and (sums.weights == 1).all()
            for name, held in (('weights', None if plain else torch.from_numpy(weights).float()),
                               ('outside', torch.from_numpy(sums.outside)
                                if sums.outside.any() else None)):
                self.register_buffer(f'{name}_{axis}', held)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return the tensor with other sizes."""
        for axis in self.axes:
            x = self._along(x, axis)
        return x

    def _along(self, x: torch.Tensor, axis: int) -> torch.Tensor:
        places: Any = getattr(self, f'places_{axis}', None)
        weights: Any = getattr(self, f'weights_{axis}')
        outside: Any = getattr(self, f'outside_{axis}')
        behind = [-1] + [1] * (x.dim() - axis - 1)
        if places is None:
            x = torch.matmul(x.movedim(axis, -1), weights.to(x.dtype).t()).movedim(-1, axis)
        elif weights is None:
            x = x.index_select(axis, places[0])
        else:
            parts = [x.index_select(axis, place) * weight.to(x.dtype).reshape(behind)
                     for place, weight in zip(places, weights)]
            x = sum(parts[1:], parts[0])
        if outside is not None:
            x = torch.where(outside.reshape(behind), torch.tensor(self.value, dtype=x.dtype), x)
        return x


class Interpolated(nn.Module):
    """A Resize that `interpolate` computes."""

    def __init__(self, options: Mapping[str, Any]) -> None:
        super().__init__()
        self.options = {**options}

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return the tensor with other height and width."""
        return nn.functional.interpolate(x, **self.options)


def resized(resize: Resize, *, floating: bool = True) -> nn.Module:
    """
    Return a module that computes a Resize.

    :raises ResizeError: if it interpolates whole numbers.
    """
    if not floating and resize.mode != 'nearest':
        raise ResizeError(f'{resize.mode} of whole numbers: how it rounds nothing defines')
    options = _interpolation(resize) if floating else None
    return Interpolated(options) if options else Summed(resize)


def _interpolation(resize: Resize) -> dict[str, Any] | None:
    """Return the options by which `interpolate` gives the same sums, None if none do."""
    sums, rank = resize.sums(), len(resize.shape)
    if not 3 <= rank <= 5 or not sums or min(sums) < 2 or any(
            one.outside.any() for one in sums.values()) or resize.antialias:
        return None
    # What does not change takes part, too: its size stays, and its coordinates.
    size, scales = resize.result[2:], dict(zip(resize.axes, (s for _, s in resize.targets())))
    # What was written as 1.7 stands in the file in single precision: interpolate had it whole.
    factors = [float(str(np.float32(scales.get(axis, 1.0)))) for axis in range(2, rank)]
    bent = {'linear': {3: 'linear', 4: 'bilinear', 5: 'trilinear'}[rank], 'cubic': 'bicubic'}
    kinds = [('nearest', None), ('nearest-exact', None)] if resize.mode == 'nearest' else [
        (bent[resize.mode], False), (bent[resize.mode], True)]
    if resize.mode == 'cubic' and rank != 4:
        return None
    for mode, aligned in kinds:
        for factor in (False, True):
            if factor and (aligned or [math.floor(f * n) for f, n in zip(
                    factors, resize.shape[2:])] != [*size]):
                continue
            if all(_agree(sums.get(axis), _torch_sums(
                    mode, bool(aligned), resize.shape[axis], size[axis - 2],
                    factors[axis - 2] if factor else None)) for axis in range(2, rank)):
                given = {'scale_factor': factors} if factor else {'size': [*size]}
                return {**given, 'mode': mode, 'align_corners': aligned}
    return None


def _torch_sums(mode: str, aligned: bool, size: int, after: int, factor: float | None) -> Sums:
    """Return the sums of `interpolate` along a dimension, in its precision."""
    single = np.float32
    if aligned:
        step = single(size - 1) / single(after - 1) if after > 1 else single(0)
    else:
        step = single(1 / factor) if factor else single(size) / single(after)
    n = np.arange(after, dtype=single)
    if mode.startswith('nearest'):
        shift = single(0.5 if mode == 'nearest-exact' else 0)
        places = np.floor((n + shift) * step).clip(0, size - 1)[:, None]
        return Sums(places.astype(np.int64), np.ones((after, 1)), np.zeros(after, bool), size)
    where = n * step if aligned else (n + single(0.5)) * step - single(0.5)
    if mode != 'bicubic':
        where = where.clip(0)
    first = np.floor(where)
    offsets = np.arange(-1, 3) if mode == 'bicubic' else np.arange(2)
    apart = np.abs(offsets - (where - first)[:, None]).astype(np.float64)
    weights = Resize((1,), sizes=(1,))._cubic(apart) if mode == 'bicubic' else 1 - apart
    return Sums((first[:, None] + offsets).clip(0, size - 1).astype(np.int64), weights,
                np.zeros(after, bool), size)


def _agree(wanted: Sums | None, got: Sums) -> bool:
    """Whether two ways give the same sums, of made-up numbers; None: nothing changes."""
    values = np.random.default_rng(0).standard_normal(got.size)
    if wanted is None:
        return len(got.places) == got.size and np.abs(got.of(values) - values).max() < 1e-9
    if len(wanted.places) != len(got.places):
        return False
    if wanted.either is not None:
        return got.places.shape[1] == 1 and bool(
            (wanted.either == got.places).any(1).all())
    return bool(np.abs(wanted.of(values) - got.of(values)).max() < 1e-4)
