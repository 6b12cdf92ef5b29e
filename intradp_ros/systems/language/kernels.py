# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""
What layers consist of: products with stored weights, norms, activations, attention.

`kernels()` computes with the compiled library of the package (its source is src/): each
token's sums have one order, so that their bits depend on nothing that is computed with it.  Where
it was not compiled, and on accelerators, torch computes the same within 1e-6, without that
promise.
"""
from __future__ import annotations

from collections.abc import Sequence
import ctypes
from functools import cache
import logging
import math
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from torch import Tensor
import torch.nn.functional as F  # noqa: N812

from intradp_ros.split.kernel_device import HOST, KernelDevice
from intradp_ros.systems.language.stored import FLOAT32, Stored

if TYPE_CHECKING:
    from intradp_ros.systems.language.block_math import LaneRun

LIBRARY = Path(__file__).parents[2] / 'language_kernels.so'
_VERSION = 3
_LOG = logging.getLogger(__name__)
_P, _N = ctypes.c_void_p, ctypes.c_int64
#: Activations that are known here, by the number that the library gives them.
SILU, GELU_TANH = 0, 1
#: Bytes of the floats that torch makes of a stored matrix at once: of some rows after others.
EXPANDED = 64 << 20


class VectorView(ctypes.Structure):
    """A vector as the library sees it."""

    _fields_ = [('data', _P), ('count', _N), ('type', ctypes.c_int32)]

    @classmethod
    def of(cls, stored: Stored | None) -> VectorView:
        """Return a view; of none, one without data."""
        return cls() if stored is None else cls(
            stored.data.data_ptr(), stored.shape[0], stored.type.number)


class MatrixView(ctypes.Structure):
    """A matrix with its bias as the library sees it."""

    _fields_ = [('data', _P), ('rows', _N), ('columns', _N), ('type', ctypes.c_int32),
                ('bias', VectorView)]

    @classmethod
    def of(cls, stored: Stored, bias: Stored | None = None) -> MatrixView:
        """Return a view."""
        return cls(stored.data.data_ptr(), *stored.shape, stored.type.number, VectorView.of(bias))


class NormKind(ctypes.Structure):
    """What norms add to the mean of squares, and to their weights."""

    _fields_ = [('eps', ctypes.c_float), ('offset', ctypes.c_float)]


class AttentionView(ctypes.Structure):
    """The attention half of a layer as the library sees it."""

    _fields_ = [
        *((name, VectorView) for name in ('before', 'after', 'query_norm', 'key_norm')),
        *((name, MatrixView) for name in ('query', 'key', 'value', 'out')),
        ('norm', NormKind), ('heads', ctypes.c_int32), ('groups', ctypes.c_int32),
        ('dim', ctypes.c_int32), ('rotated', ctypes.c_int32), ('scaling', ctypes.c_float),
        ('cap', ctypes.c_float), ('window', _N), ('layer', ctypes.c_int32),
        ('angles', ctypes.c_int32), ('sinks', VectorView)]


class MlpView(ctypes.Structure):
    """The MLP half of a layer as the library sees it."""

    _fields_ = [('before', VectorView), ('after', VectorView), ('gate', MatrixView),
                ('up', MatrixView), ('down', MatrixView), ('norm', NormKind),
                ('gate_kind', ctypes.c_int32)]


class HalfView(ctypes.Structure):
    """A half of a layer as the library sees it: the address of one of the two."""

    _fields_ = [('attention', _P), ('mlp', _P)]


class CacheView(ctypes.Structure):
    """Keys and values of a layer as the library sees them."""

    _fields_ = [('keys', _P), ('values', _P), ('group_stride', _N)]


class AnglesView(ctypes.Structure):
    """Cosines and sines of a lane's tokens (tokens x dim/2) as the library sees them."""

    _fields_ = [('cosines', _P), ('sines', _P)]


class LaneView(ctypes.Structure):
    """Tokens that are computed together as the library sees them: caches of each layer, angles."""

    _fields_ = [('tokens', _N), ('positions', _P), ('first_page', _P), ('pages', _P),
                ('caches', _P), ('angles', _P)]


class Kernels:
    """The compiled library; `library` is None where torch computes, on any `device`."""

    def __init__(self, library: ctypes.CDLL | None, device: KernelDevice = HOST) -> None:
        self.library, self.device = library, device

    @property
    def name(self) -> str:
        """Return what computes: a kind of instructions, or torch."""
        return self.library.language_kernels_name().decode() if self.library else \
            f'torch on {self.device.hardware}' if self.device.hardware else 'torch'

    def floats(self, stored: Stored) -> Tensor:
        """Return a tensor in float32; a view of what is."""
        if self.library is None or stored.type.dtype is not None:
            return stored.floats()
        out = torch.empty(stored.shape)
        rows = math.prod(stored.shape[:-1])
        self.library.language_expand(
            stored.type.number, stored.data.data_ptr(), rows, stored.shape[-1], stored.row_bytes,
            out.data_ptr(), torch.get_num_threads())
        return out

    def rows(self, stored: Stored, ids: Tensor) -> Tensor:
        """Return rows of a matrix in float32."""
        taken = stored.data.view(stored.shape[0], -1)[ids]
        return self.floats(Stored(taken.view(-1), stored.type, (len(ids), stored.shape[1])))

    def read(self, floats: Tensor) -> None:
        """Read memory as fast as products could."""
        if self.library is None:
            floats.max()
            self.device.finish()
        else:
            self.library.language_read(floats.data_ptr(), floats.numel(), torch.get_num_threads())

    def product(self, x: Tensor, matrix: Stored, bias: Stored | None = None) -> Tensor:
        """Return x (tokens x columns) times a matrix (rows x columns) and its bias."""
        if self.library is None:
            found = _product(x, matrix)
            return found if bias is None else found + bias.floats()
        x = x.contiguous()
        out = torch.empty(len(x), matrix.shape[0])
        view = MatrixView.of(matrix, bias)
        self.library.language_product(ctypes.byref(view), x.data_ptr(), len(x), out.data_ptr(),
                                      torch.get_num_threads())
        return out

    def norm(self, x: Tensor, weight: Stored, eps: float, offset: float) -> Tensor:
        """Return x (any x width) over its root mean square, times (weight + offset)."""
        if self.library is None:
            return F.rms_norm(x, weight.shape, weight.floats() + offset, eps)
        x = x.contiguous()
        out = torch.empty_like(x)
        self.library.language_norm(
            ctypes.byref(VectorView.of(weight)), eps, offset, x.data_ptr(),
            x.numel() // weight.shape[0], out.data_ptr())
        return out

    def activated(self, kind: int, x: Tensor) -> Tensor:
        """Return an activation of each number."""
        if self.library is None:
            return F.silu(x) if kind == SILU else F.gelu(x, approximate='tanh')
        x = x.contiguous()
        out = torch.empty_like(x)
        self.library.language_activate(kind, x.data_ptr(), x.numel(), out.data_ptr())
        return out

    def capped(self, x: Tensor, cap: float) -> Tensor:
        """Return cap tanh(x / cap)."""
        if self.library is None:
            return torch.tanh(x / cap) * cap
        out = x.clone(memory_format=torch.contiguous_format)
        self.library.language_cap(out.data_ptr(), out.numel(), cap)
        return out

    def attend(self, run: LaneRun, layer: int, queries: Tensor, scaling: float,
               window: int | None, cap: float | None, sinks: Stored | None = None) -> Tensor:
        """
        Return attention (tokens x heads x dim) of queries (heads x tokens x dim).

        Keys and values are those of the lane's pages, the new ones among them; `sinks` (heads)
        take part in the sums of weights.
        """
        heads, _, dim = queries.shape
        if self.library is None:
            return _attend(run, layer, queries, scaling, window, cap, sinks)
        packed = queries.transpose(0, 1).contiguous()
        out = torch.empty_like(packed)
        groups = run.kv.layers[layer][0].shape[0]
        view = AttentionView(heads=heads, groups=groups, dim=dim, scaling=scaling, cap=cap or 0.0,
                             window=window or 0, layer=layer, sinks=VectorView.of(sinks))
        self.library.language_attend(ctypes.byref(view), ctypes.byref(run.view),
                                     packed.data_ptr(), out.data_ptr(), torch.get_num_threads())
        return out

    def layers(self, halves: Sequence[HalfView], lane: LaneView, x: Tensor) -> Tensor:
        """Return the hidden states after halves of layers, one after another."""
        assert self.library
        x = x.contiguous()
        out = torch.empty_like(x)
        self.library.language_layers(
            (HalfView * len(halves))(*halves), len(halves), ctypes.byref(lane), x.data_ptr(),
            out.data_ptr(), torch.get_num_threads())
        return out


def kernels_on(device: KernelDevice) -> Kernels:
    """Return what computes on a device."""
    return kernels() if device is HOST else Kernels(None, device)


@cache
def kernels() -> Kernels:
    """Return what computes here; that it is torch is said once."""
    try:
        library = ctypes.CDLL(str(LIBRARY))
        if library.language_kernels_version() == _VERSION:
            return Kernels(_declared(library))
        reason = f'{LIBRARY.name} is of another version'
    except OSError:
        reason = f'{LIBRARY.name} was not compiled'
    _LOG.warning('%s: language models are computed by torch, which makes floats of packed weights '
                 'again for each token; build the package with a C++ compiler', reason)
    return Kernels(None)


def _declared(library: ctypes.CDLL) -> ctypes.CDLL:
    i, f = ctypes.c_int32, ctypes.c_float
    types: dict[str, Sequence[type]] = {
        'use': (i,), 'expand': (i, _P, _N, _N, _N, _P, i), 'product': (_P, _P, _N, _P, i),
        'norm': (_P, f, f, _P, _N, _P), 'activate': (i, _P, _N, _P), 'cap': (_P, _N, f),
        'attend': (_P, _P, _P, _P, i), 'layers': (_P, _N, _P, _P, _P, i), 'read': (_P, _N, i)}
    for name, arguments in types.items():
        function = getattr(library, f'language_kernels_{name}' if name == 'use'
                           else f'language_{name}')
        function.argtypes, function.restype = list(arguments), None
    library.language_kernels_use.restype, library.language_read.restype = i, f
    library.language_kernels_name.restype = ctypes.c_char_p
    return library


def _product(x: Tensor, matrix: Stored) -> Tensor:
    rows, each = matrix.shape[0], max(1, EXPANDED // (4 * matrix.shape[1]))
    if matrix.type is FLOAT32 or rows <= each:
        return F.linear(x, matrix.floats())
    return torch.cat([F.linear(x, matrix.rows(first, min(rows, first + each)).floats())
                      for first in range(0, rows, each)], 1)


def _attend(run: LaneRun, layer: int, queries: Tensor, scaling: float, window: int | None,
            cap: float | None, sinks: Stored | None) -> Tensor:
    row, out = 0, []
    for number, part in enumerate(run.lane.parts):
        out.append(_attend_part(run, layer, number, queries[:, row:row + part.count], scaling,
                                window, cap, sinks))
        row += part.count
    return torch.cat(out)


def _attend_part(run: LaneRun, layer: int, number: int, queries: Tensor, scaling: float,
                 window: int | None, cap: float | None, sinks: Stored | None) -> Tensor:
    keys, values = run.gathered(layer, number)
    mask = run.mask(number, window)
    heads, count, dim = queries.shape
    groups = keys.shape[0]
    scores = queries.reshape(groups, heads // groups * count, dim) @ keys.transpose(1, 2)
    scores = scores * scaling
    if cap is not None:
        scores = torch.tanh(scores / cap) * cap
    if mask is not None:
        scores = scores.view(groups, heads // groups, count, -1).masked_fill(
            ~mask, -math.inf).view(scores.shape)
    if sinks is not None:
        of_rows = sinks.floats().view(groups, -1, 1).repeat_interleave(count, 1)
        scores = torch.cat([scores, of_rows], -1)
    weights = torch.softmax(scores, -1)[..., :keys.shape[1]]
    return (weights @ values).view(heads, count, dim).transpose(0, 1)
