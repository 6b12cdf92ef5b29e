# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""
Weights as they are stored: plain numbers, or blocks of few bits with scales as GGUF has them.

They stay so in blobs, in memory and on the way; what computes with them makes floats of few at
a time.  Blocks lie within a row, so that rows can be taken one by one.
"""
from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
import math

import torch
from torch import Tensor


@dataclass(frozen=True, slots=True)
class StoredType:
    """
    How numbers are stored: `block` of them in `block_bytes`; `number` is that of GGUF.

    `dtype` is that of torch, None where it has none.
    """

    name: str
    number: int
    block: int
    block_bytes: int
    dtype: torch.dtype | None = None

    def nbytes(self, shape: Sequence[int]) -> int:
        """Return the bytes of a tensor; its rows are of whole blocks."""
        return math.prod(shape) // self.block * self.block_bytes


FLOAT32 = StoredType('float32', 0, 1, 4, torch.float32)
STORED_TYPES: Mapping[str, StoredType] = {stored.name: stored for stored in (
    FLOAT32,
    StoredType('float16', 1, 1, 2, torch.float16),
    StoredType('bfloat16', 30, 1, 2, torch.bfloat16),
    StoredType('q4_0', 2, 32, 18),
    StoredType('q4_1', 3, 32, 20),
    StoredType('q5_0', 6, 32, 22),
    StoredType('q5_1', 7, 32, 24),
    StoredType('q8_0', 8, 32, 34),
    StoredType('q4_k', 12, 256, 144),
    StoredType('q5_k', 13, 256, 176),
    StoredType('q6_k', 14, 256, 210),
    StoredType('mxfp4', 39, 32, 17),
)}
OF_DTYPE: Mapping[torch.dtype, StoredType] = {
    stored.dtype: stored for stored in STORED_TYPES.values() if stored.dtype}
OF_NUMBER: Mapping[int, StoredType] = {stored.number: stored for stored in STORED_TYPES.values()}


@dataclass(frozen=True, eq=False, slots=True)
class Stored:
    """A tensor as it is stored; `data` are its bytes (uint8, flat)."""

    data: Tensor
    type: StoredType  # noqa: A003
    shape: tuple[int, ...]

    @classmethod
    def of(cls, tensor: Tensor) -> Stored:
        """Return a tensor of plain numbers; KeyError for other types."""
        return cls(tensor.contiguous().view(-1).view(torch.uint8), OF_DTYPE[tensor.dtype],
                   tuple(tensor.shape) or (1,))

    @property
    def row_bytes(self) -> int:
        """Return the bytes of a row."""
        return self.type.nbytes(self.shape[-1:])

    def rows(self, first: int, stop: int) -> Stored:
        """Return some rows of a matrix."""
        return Stored(self.data[first * self.row_bytes:stop * self.row_bytes], self.type,
                      (stop - first, *self.shape[1:]))

    def part(self, number: int) -> Stored:
        """Return one of several tensors that lie one after another."""
        nbytes = self.type.nbytes(self.shape[1:])
        return Stored(self.data[number * nbytes:(number + 1) * nbytes], self.type, self.shape[1:])

    def order(self, rows: Tensor) -> Stored:
        """Return a copy with its rows in another order (a row of a vector is a number)."""
        each = self.row_bytes if len(self.shape) > 1 else self.type.block_bytes
        return Stored(self.data.view(-1, each)[rows].view(-1), self.type, self.shape)

    def equals(self, other: Stored) -> bool:
        """Return whether another tensor is the same, byte for byte."""
        return self.type == other.type and self.shape == other.shape \
            and torch.equal(self.data, other.data)

    def floats(self) -> Tensor:
        """
        Return it in float32: the numbers that GGUF's own package makes of it.

        What is float32 is a view.
        """
        if self.type.dtype is not None:
            return self.data.view(self.type.dtype).view(self.shape).float()
        if not self.data.numel():
            return torch.empty(self.shape, device=self.data.device)
        return _EXPANDED[self.type.name](self.data.view(-1, self.type.block_bytes)).reshape(
            self.shape)


def _halves(blocks: Tensor, first: int) -> Tensor:
    """Return the number in float16 that begins at a byte of each block (blocks x 1)."""
    return blocks[:, first:first + 2].contiguous().view(torch.float16).float()


def _bits(data: Tensor, width: int, each: int) -> Tensor:
    """Return numbers of some bits (blocks x all): of `each` bytes the lowest ones first."""
    parts = data.reshape(len(data), data.shape[1] // each, 1, each)
    mask = (1 << width) - 1
    return torch.cat([parts >> shift & mask for shift in range(0, 8, width)], 2).flatten(1)


def _q4(blocks: Tensor) -> Tensor:
    return _halves(blocks, 0) * (_bits(blocks[:, 2:], 4, 16).float() - 8)


def _q4_1(blocks: Tensor) -> Tensor:
    return _halves(blocks, 0) * _bits(blocks[:, 4:], 4, 16).float() + _halves(blocks, 2)


def _fives(blocks: Tensor, first: int) -> Tensor:
    fifth = _bits(blocks[:, first:first + 4], 1, 1)
    return (_bits(blocks[:, first + 4:], 4, 16) | fifth << 4).float()


def _q5(blocks: Tensor) -> Tensor:
    return _halves(blocks, 0) * (_fives(blocks, 2) - 16)


def _q5_1(blocks: Tensor) -> Tensor:
    return _halves(blocks, 0) * _fives(blocks, 4) + _halves(blocks, 2)


def _q8(blocks: Tensor) -> Tensor:
    return _halves(blocks, 0) * blocks[:, 2:].view(torch.int8).float()


def _by_scales(blocks: Tensor, numbers: Tensor) -> Tensor:
    """Return numbers times scales of 6 bits less minima of 6 bits, of 8 parts each."""
    low, high, both = (blocks[:, first:first + 4] for first in (4, 8, 12))
    scales = torch.cat([low & 63, both & 15 | low >> 2 & 48], 1).float()
    minima = torch.cat([high & 63, both >> 4 | high >> 2 & 48], 1).float()
    factors = (_halves(blocks, 0) * scales).unsqueeze(2)
    return factors * numbers.view(-1, 8, 32).float() - (_halves(blocks, 2) * minima).unsqueeze(2)


def _q4_k(blocks: Tensor) -> Tensor:
    return _by_scales(blocks, _bits(blocks[:, 16:], 4, 32))


def _q5_k(blocks: Tensor) -> Tensor:
    return _by_scales(blocks, _bits(blocks[:, 48:], 4, 32) | _bits(blocks[:, 16:48], 1, 32) << 4)


def _q6_k(blocks: Tensor) -> Tensor:
    numbers = _bits(blocks[:, :128], 4, 64) | _bits(blocks[:, 128:192], 2, 32) << 4
    factors = _halves(blocks, 208) * blocks[:, 192:208].view(torch.int8).float()
    return factors.unsqueeze(2) * (numbers.view(-1, 16, 16).float() - 32)


def _mxfp4(blocks: Tensor) -> Tensor:
    exponent = blocks[:, :1].int()
    scales = torch.where(exponent < 2, 1 << 21 << exponent, exponent - 1 << 23).view(torch.float32)
    doubled = torch.tensor([0., 1., 2., 3., 4., 6., 8., 12.], device=blocks.device)
    return scales * torch.cat([doubled, -doubled + 0.0])[_bits(blocks[:, 1:], 4, 16).long()]


def mxfp4_of(codes: Tensor, scales: Tensor) -> Stored:
    """
    Return matrices as GGUF stores them from what OpenAI's checkpoints hold.

    Those are `codes` (any x rows x blocks x 16 bytes, of two neighbours each) and `scales`.
    """
    each = torch.stack([codes & 15, codes >> 4], -1).flatten(-2)
    data = torch.cat([scales.unsqueeze(-1), each[..., :16] | each[..., 16:] << 4], -1)
    shape = *scales.shape[:-1], 32 * scales.shape[-1]
    return Stored(data.flatten(), STORED_TYPES['mxfp4'], shape)


#: Make floats of blocks (blocks x bytes) by operators that any device of torch has.
_EXPANDED: Mapping[str, Callable[[Tensor], Tensor]] = {
    'q4_0': _q4, 'q4_1': _q4_1, 'q5_0': _q5, 'q5_1': _q5_1, 'q8_0': _q8, 'q4_k': _q4_k,
    'q5_k': _q5_k, 'q6_k': _q6_k, 'mxfp4': _mxfp4}
