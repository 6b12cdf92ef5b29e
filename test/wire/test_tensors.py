# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""Tensors and dtypes cross the wire unchanged."""
from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st
import pytest
import torch

from intradp_ros.wire.dtypes import decode_dtype, encode_dtype
from intradp_ros.wire.frames import MalformedFrameError
from intradp_ros.wire.tensors import tensor_bytes, tensor_from_bytes

DTYPES = (torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64,
          torch.uint16, torch.uint32, torch.uint64, torch.float16, torch.bfloat16,
          torch.float32, torch.float64, torch.complex64, torch.complex128)


def random_tensor(shape: tuple[int, ...], dtype: torch.dtype, seed: int) -> torch.Tensor:
    """Return random bits as a tensor; bits of a bool are 0 or 1."""
    top = 2 if dtype is torch.bool else 256
    generator = torch.Generator().manual_seed(seed)
    raw = torch.randint(top, (*shape, dtype.itemsize), dtype=torch.uint8, generator=generator)
    return raw.view(dtype).reshape(shape)


def same_bits(a: torch.Tensor, b: torch.Tensor) -> bool:
    """Return whether two tensors agree in shape, dtype and every bit."""
    return (a.shape, a.dtype) == (b.shape, b.dtype) and bytes(tensor_bytes(a)) == bytes(
        tensor_bytes(b))


@pytest.mark.parametrize('dtype', DTYPES, ids=str)
def test_dtype_round_trip(dtype: torch.dtype) -> None:
    """Every dtype has its own code, and its bits are those of an element."""
    code, bits = encode_dtype(dtype)
    assert bits == dtype.itemsize * 8
    assert decode_dtype(code, bits) is dtype


def test_codes_are_those_of_dlpack() -> None:
    """The codes that other programs read are as the standard says."""
    assert encode_dtype(torch.float32) == (2, 32)
    assert encode_dtype(torch.uint8) == (1, 8)
    assert encode_dtype(torch.bfloat16) == (4, 16)
    assert encode_dtype(torch.bool) == (6, 8)


def test_unknown_dtypes_are_refused() -> None:
    """A dtype without a code names the cause; a code without a dtype is malformed."""
    with pytest.raises(ValueError, match='float8'):
        encode_dtype(torch.float8_e5m2)
    with pytest.raises(MalformedFrameError, match='code 2 with 7 bits'):
        decode_dtype(2, 7)


@settings(max_examples=150)
@given(shape=st.lists(st.integers(0, 5), max_size=4).map(tuple), dtype=st.sampled_from(DTYPES),
       seed=st.integers(0, 2**31), order=st.randoms(use_true_random=False),
       step=st.integers(1, 3))
def test_any_layout_round_trips(shape, dtype, seed, order, step) -> None:
    """Permuted and strided tensors arrive with the same elements in row-major order."""
    tensor = random_tensor(shape, dtype, seed)
    dims = list(range(tensor.dim()))
    order.shuffle(dims)
    tensor = tensor.permute(dims)
    if tensor.dim():
        tensor = tensor[..., ::step]
    back = tensor_from_bytes(bytearray(tensor_bytes(tensor)), dtype, tuple(tensor.shape))
    assert back.is_contiguous()
    assert same_bits(back, tensor)


def test_dense_tensors_are_not_copied() -> None:
    """Both ways share the memory of what they are given."""
    tensor = torch.arange(6, dtype=torch.float32)
    view = tensor_bytes(tensor)
    tensor[0] = 7.0
    assert torch.frombuffer(view, dtype=torch.float32)[0] == 7.0
    buffer = bytearray(8)
    back = tensor_from_bytes(buffer, torch.int32, (2,))
    back[1] = 258
    assert bytes(buffer) == b'\0\0\0\0\2\1\0\0'


def test_conjugate_views_are_resolved() -> None:
    """A lazily conjugated tensor is sent as what it means."""
    tensor = torch.tensor([1 + 2j, 3 - 4j], dtype=torch.complex64)
    back = tensor_from_bytes(bytes(tensor_bytes(tensor.conj())), torch.complex64, (2,))
    assert torch.equal(back, torch.tensor([1 - 2j, 3 + 4j], dtype=torch.complex64))


@pytest.mark.parametrize('shape', [(3,), (1, 1), (-1, -2)])
def test_wrong_sizes_are_refused(shape: tuple[int, ...]) -> None:
    """Bytes must be exactly those of the shape."""
    with pytest.raises(MalformedFrameError, match='8 bytes'):
        tensor_from_bytes(bytes(8), torch.float32, shape)
