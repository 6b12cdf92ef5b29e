# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""Encoded transfers arrive bit by bit; what is malformed is refused and costs no memory."""
from __future__ import annotations

from random import Random
import struct
import tracemalloc

from hypothesis import given, settings
from hypothesis import strategies as st
import lz4.block
import numpy as np
import pytest
import torch
import zstandard

from intradp_ros.link.chunk_size import MAX_CHUNK_BYTES
from intradp_ros.split.regions.region import Region
from intradp_ros.wire.chunking import ExpectedTransfer, Reassembler
from intradp_ros.wire.codecs import names
from intradp_ros.wire.codecs.registry import available, CODECS, most_elements, NUMBERS
from intradp_ros.wire.cutting import CODEC_NONE, cut_into_chunks
from intradp_ros.wire.frames import Chunk, MalformedFrameError
from intradp_ros.wire.tensors import tensor_bytes

DTYPES = (torch.float32, torch.float16, torch.bfloat16, torch.float64, torch.uint8, torch.int8,
          torch.uint16, torch.int16, torch.int32, torch.int64, torch.bool, torch.complex64,
          torch.complex128)
LOSSLESS = names.LOSSLESS[1:]


def cut(tensor: torch.Tensor, encoding: str, chunk_bytes: int = 30_000) -> list[Chunk]:
    return list(cut_into_chunks(tensor, session=1, epoch=1, inference=1, schedule=0, transfer=0,
                                value=2,
                                region=Region(0, 4), chunk_bytes=chunk_bytes, encoding=encoding))


def expecting(tensor: torch.Tensor, encoding: str) -> ExpectedTransfer:
    return ExpectedTransfer(2, Region(0, 4), tensor.dtype, tuple(tensor.shape), encoding)


def joined(chunks: list[Chunk], expected: ExpectedTransfer) -> torch.Tensor:
    pile = Reassembler(lambda chunk: expected)
    results = [pile.add(chunk) for chunk in chunks]
    assert results[:-1] == [None] * (len(chunks) - 1)
    assert results[-1] is not None
    return results[-1]


def same_bits(left: torch.Tensor, right: torch.Tensor) -> bool:
    return (left.dtype, left.shape) == (right.dtype, right.shape) and \
        bytes(tensor_bytes(left)) == bytes(tensor_bytes(right))


def contents(kind: str, dtype: torch.dtype, shape: tuple[int, ...], seed: int) -> torch.Tensor:
    """Return a tensor of a kind that some encoding is made for, or of none."""
    generator = torch.Generator().manual_seed(seed)
    noise = torch.randn(shape, generator=generator)
    if kind == 'bits':  # any bit patterns: NaNs with payloads, denormals, infinities
        size = noise.numel() * dtype.itemsize
        raw = torch.randint(256, (size,), dtype=torch.uint8, generator=generator)
        if dtype is torch.bool:
            raw %= 2
        return raw.view(dtype).view(shape) if size else torch.empty(shape, dtype=dtype)
    values = {'relu': noise.relu(), 'dense': noise, 'constant': torch.full(shape, 3.0),
              'binary': (noise > 0.5).float(), 'smooth': 20 * noise.cumsum(-1) / 10,
              'signed zeros': torch.where(noise > 0, 0.0, -0.0)}[kind]
    unsigned = dtype in (torch.uint8, torch.uint16)
    return (values.abs() if unsigned else values).to(dtype)


tensors = st.builds(
    contents,
    st.sampled_from(('bits', 'relu', 'dense', 'constant', 'binary', 'smooth', 'signed zeros')),
    st.sampled_from(DTYPES),
    st.lists(st.sampled_from((1, 2, 3, 5, 8, 17, 40)), min_size=1, max_size=3).map(tuple),
    st.integers(0, 9))


@settings(max_examples=250)
@given(tensor=tensors, encoding=st.sampled_from(LOSSLESS),
       chunk_bytes=st.sampled_from((16, 130, 300, 1000, 30_000)), order=st.permutations((0, 1, 2)),
       sliced=st.booleans())
def test_lossless_round_trip(tensor, encoding, chunk_bytes, order, sliced) -> None:
    """Whatever the dtype, the contents, the strides and the size of chunks."""
    if sliced and tensor.dim() == 3:
        tensor = tensor.permute(order)[..., ::2]
    chunks = cut(tensor, encoding, chunk_bytes)
    assert {c.codec for c in chunks} <= {CODEC_NONE, NUMBERS[encoding]}
    assert all(memoryview(c.data).nbytes <= chunk_bytes for c in chunks)
    assert sum(memoryview(c.data).nbytes for c in chunks) <= tensor.numel() * tensor.element_size()
    assert same_bits(joined(chunks, expecting(tensor, encoding)), tensor)


@pytest.mark.parametrize(('encoding', 'kind', 'dtype', 'ratio'), [
    ('zstd', 'constant', torch.float32, 100), ('lz4', 'constant', torch.float32, 100),
    ('floats', 'relu', torch.float32, 2.0), ('floats', 'relu', torch.bfloat16, 2.0),
    ('floats', 'dense', torch.float32, 1.15), ('delta', 'smooth', torch.int16, 1.7),
    ('delta', 'smooth', torch.uint8, 1.2), ('bits', 'binary', torch.bool, 7.5),
    ('bits', 'binary', torch.uint8, 7.5), ('bits', 'binary', torch.float32, 30),
    ('bits', 'signed zeros', torch.float64, 60), ('fp16', 'dense', torch.float32, 2.1),
    ('int8', 'dense', torch.float32, 3.9)])
def test_encodings_shrink_what_they_are_made_for(encoding, kind, dtype,
                                                 ratio) -> None:
    tensor = contents(kind, dtype, (8, 100, 100), 0)
    chunks = cut(tensor, encoding)
    assert {c.codec for c in chunks} == {NUMBERS[encoding]}
    sent = sum(memoryview(c.data).nbytes for c in chunks)
    assert tensor.numel() * tensor.element_size() / sent > ratio


@settings(max_examples=60)
@given(count=st.integers(1, 2000), dtype=st.sampled_from((torch.bool, torch.uint8, torch.float32)),
       seed=st.integers(0, 99))
def test_bits_of_odd_sizes(count: int, dtype: torch.dtype, seed: int) -> None:
    tensor = torch.randint(2, (count,), generator=torch.Generator().manual_seed(seed)).to(dtype)
    assert same_bits(joined(cut(tensor, 'bits', 200), expecting(tensor, 'bits')), tensor)


@pytest.mark.parametrize('place', [0, 5, 7000, 299_999])
@pytest.mark.parametrize('third', [2.0, -0.0, float('nan'), 1e-45])
def test_a_third_value_anywhere_crosses_plain(place: int, third: float) -> None:
    """A grid that is nearly always binary is not, once; that must not go wrong."""
    grid = (torch.rand(300_000, generator=torch.Generator().manual_seed(0)) > 0.9).float()
    grid[place] = third
    chunks = cut(grid, 'bits')
    assert {c.codec for c in chunks} == {CODEC_NONE}
    assert same_bits(joined(chunks, expecting(grid, 'bits')), grid)


@pytest.mark.parametrize(('encoding', 'kind', 'count'), [
    ('bits', 'constant', 5), ('fp16', 'dense', 73), ('int8', 'dense', 35)])
def test_a_transfer_crosses_in_few_chunks(encoding: str, kind: str, count: int) -> None:
    """Chunks are filled as far as an encoding's bound on what an element takes up allows."""
    assert len(cut(contents(kind, torch.float32, (1_000_000,), 0), encoding)) == count


@settings(max_examples=60)
@given(encoding=st.sampled_from([c.name for c in CODECS.values() if c.bits]),
       chunk_bytes=st.integers(1, MAX_CHUNK_BYTES), seed=st.integers(0, 9))
def test_promised_sizes_hold_for_noise(encoding: str, chunk_bytes: int, seed: int) -> None:
    """An encoding that bounds what an element takes up keeps to it."""
    codec, dtype = CODECS[encoding], torch.float32
    count = most_elements(codec, dtype, chunk_bytes)
    noise = np.random.default_rng(seed).normal(size=count).astype(np.float32)
    if encoding == 'bits':
        noise = (noise > 0).astype(np.float32)
    if count:
        assert len(codec.encode(noise.view(np.uint8), dtype)) <= chunk_bytes


@pytest.mark.parametrize('special', [float('nan'), float('inf'), 1e30])
@pytest.mark.parametrize('encoding', names.LOSSY)
def test_lossy_encodings_leave_special_values_alone(encoding: str, special: float) -> None:
    tensor = torch.randn(5000, generator=torch.Generator().manual_seed(0))
    tensor[77] = special
    result = joined(cut(tensor, encoding), expecting(tensor, encoding))
    if encoding == 'fp16' or special != 1e30:
        assert same_bits(result, tensor)
    assert result[77] == tensor[77] or special != special


@pytest.mark.parametrize(('encoding', 'error'), [('fp16', 2e-3), ('int8', 2e-2)])
def test_lossy_encodings_stay_close(encoding: str, error: float) -> None:
    tensor = torch.randn(8, 50, 50, generator=torch.Generator().manual_seed(0))
    result = joined(cut(tensor, encoding), expecting(tensor, encoding))
    assert 0 < (result - tensor).abs().max() < error
    assert same_bits(joined(cut(tensor.double(), encoding), expecting(tensor.double(), encoding)),
                     tensor.double())


def test_levels_of_a_constant_are_not_divided_by_their_distance() -> None:
    tensor = contents('constant', torch.float32, (5000,), 0)
    with np.errstate(all='raise'):
        chunks = cut(tensor, 'int8')
    assert {c.codec for c in chunks} == {NUMBERS['int8']}
    assert same_bits(joined(chunks, expecting(tensor, 'int8')), tensor)


RAW = contents('relu', torch.float32, (4, 1000), 1).numpy().view(np.uint8).reshape(-1)
LABELS = contents('smooth', torch.int32, (4, 1000), 1).numpy().view(np.uint8).reshape(-1)
GRID = contents('binary', torch.float32, (4, 1000), 1).numpy().view(np.uint8).reshape(-1)
SAMPLES = {'delta': (LABELS, torch.int32), 'bits': (GRID, torch.float32)}


def sample(name: str) -> tuple[np.ndarray, torch.dtype]:
    return SAMPLES.get(name, (RAW, torch.float32))


@pytest.mark.parametrize('name', CODECS)
def test_mangled_bytes_are_refused_or_decoded_to_the_size_asked_for(name: str) -> None:
    """Flipped, cut, extended and random bytes: never a crash, never another size."""
    codec, random = CODECS[name], Random(name)
    raw, dtype = sample(name)
    good = codec.encode(raw, dtype)
    refused = 0
    for _ in range(1500):
        bad = bytearray(good)
        for _ in range(random.choice((1, 1, 3))):
            kind = random.random()
            at = random.randrange(min(len(bad), random.choice((24, len(bad)))) or 1)
            if kind < 0.5 and bad:
                bad[at] = random.randrange(256)
            elif kind < 0.7:
                del bad[at:]
            elif kind < 0.8:
                bad += random.randbytes(random.randrange(40))
            elif kind < 0.9:
                bad[at:at] = random.randbytes(random.randrange(8))
            else:
                bad = bytearray(random.randbytes(random.randrange(60)))
        try:
            result = codec.decode(memoryview(bad), raw.size, dtype)
        except MalformedFrameError as error:
            assert error.cause == 'codec'
            refused += 1
        else:
            assert result.nbytes == raw.size and result.dtype == np.uint8
    assert refused > 200


@pytest.mark.parametrize('name', CODECS)
@pytest.mark.parametrize('wrong', [-4, 4, -8000, 8000])
def test_another_size_than_expected_is_refused(name: str, wrong: int) -> None:
    codec = CODECS[name]
    raw, dtype = sample(name)
    if name == 'bits' and abs(wrong) == 4:
        wrong *= 8  # one bit of a byte does not show
    with pytest.raises(MalformedFrameError):
        codec.decode(memoryview(codec.encode(raw, dtype)), raw.size + wrong, dtype)


def _bomb(size: int) -> bytes:
    return zstandard.ZstdCompressor(level=1).compress(bytes(size))


@pytest.mark.parametrize(('name', 'data'), [
    ('zstd', _bomb(1 << 28)), ('delta', _bomb(1 << 28)),
    ('zstd', b'\x28\xb5\x2f\xfd\xe0' + struct.pack('<Q', 1 << 62) + bytes(20)),
    ('zstd', zstandard.ZstdCompressor(write_content_size=False).compress(bytes(1 << 28))),
    ('bits', bytes(8) + _bomb(1 << 28)), ('lz4', lz4.block.compress(bytes(1 << 28))),
    ('lz4', lz4.block.compress(bytes(1 << 28), store_size=False)),
    ('floats', struct.pack('<III', 1 << 31, 0, 1 << 31)),
    ('floats', struct.pack('<III', 0, 0, len(_bomb(1 << 28))) + _bomb(1 << 28)),
    ('floats', struct.pack('<III', 0, len(_bomb(1 << 28)), 9) + _bomb(1 << 28) + _bomb(0)),
    ('fp16', struct.pack('<III', 0, 0, len(_bomb(1 << 28))) + _bomb(1 << 28)),
    ('int8', struct.pack('<dd', 0, 1) + _bomb(1 << 28)),
    ('int8', struct.pack('<dd', float('nan'), 1) + _bomb(1000))])
def test_bombs_are_refused_before_memory_is_reserved(name: str, data: bytes) -> None:
    dtype = torch.uint8 if name == 'delta' else torch.float32
    tracemalloc.start()
    try:
        with pytest.raises(MalformedFrameError) as error:
            CODECS[name].decode(memoryview(data), 4000, dtype)
        assert error.value.cause == 'codec'
        assert tracemalloc.get_traced_memory()[1] < 300_000
    finally:
        tracemalloc.stop()


def changed(chunk: Chunk, **change: object) -> Chunk:
    return Chunk(**{**{name: getattr(chunk, name) for name in chunk.__slots__}, **change})


def claims(expected: str = 'floats', **change: object) -> str:
    """Return the cause for which a chunk of an encoded transfer is refused."""
    tensor = contents('relu', torch.float32, (4, 20_000), 0)
    pile = Reassembler(lambda chunk: expecting(tensor, expected))
    with pytest.raises(MalformedFrameError) as error:
        pile.add(changed(cut(tensor, 'floats')[0], **change))
    return error.value.cause


def test_claims_of_encoded_chunks_are_checked() -> None:
    tensor = contents('relu', torch.float32, (4, 20_000), 0)
    plain = cut(tensor, 'none')[0]
    assert claims(codec=NUMBERS['zstd']) == 'codec'
    assert claims(expected='none') == 'codec'
    assert claims(codec=200) == 'codec'
    assert claims(codec=NUMBERS['floats'], data=plain.data) == 'size'
    assert claims(data=b'') == 'size'
    assert claims(codec=CODEC_NONE) == 'size'
    assert claims(count=1) == 'size'  # more than one chunk may stand for
    assert claims(data=bytes(100)) == 'codec'
    assert claims(codec=NUMBERS['int8']) == 'codec'


def test_a_chunk_that_cannot_be_decoded_may_come_again() -> None:
    tensor = contents('relu', torch.float32, (4, 20_000), 0)
    chunks = cut(tensor, 'floats')
    pile = Reassembler(lambda chunk: expecting(tensor, 'floats'))
    with pytest.raises(MalformedFrameError):
        pile.add(changed(chunks[0], data=bytes(100)))
    results = [pile.add(chunk) for chunk in chunks]
    assert results[-1] is not None and same_bits(results[-1], tensor)


def test_all_encodings_are_there() -> None:
    assert available() == set(CODECS) == set(names.ENCODINGS) - {names.NONE}
    assert available() is available()  # each chunk asks, so that modules are looked for once
