# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""
Cutting a transfer into chunks, and putting chunks back together.

The bytes of a transfer are cut into `count` chunks of equal size (the last
one may be smaller), so that the count and the transfer's own size tell where
each chunk belongs.  The receiver knows from its schedule what must come: a
chunk is only ever compared with that, and memory is reserved for what is
expected, never for what a message claims.
"""
from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from math import prod
import threading

import numpy as np
import numpy.typing as npt
import torch

from intradp_ros.operators.region import Region
from intradp_ros.wire.dtypes import encode_dtype
from intradp_ros.wire.frames import Chunk, MalformedFrameError, Stamp
from intradp_ros.wire.tensors import tensor_bytes, tensor_from_bytes

CODEC_NONE = 0
#: Codecs that this side can undo; a codec that compresses joins here and in `_Assembly.put`.
CODECS = frozenset({CODEC_NONE})
#: No chunk on the wire carries more bytes than this.
MAX_CHUNK_BYTES = 61440
NO_STAMP = Stamp()

_REMEMBERED_DROPS = 64


@dataclass(frozen=True, slots=True)
class ExpectedTransfer:
    """What the receiver's own schedule says that a transfer carries: rows of a value."""

    value: int
    region: Region
    dtype: torch.dtype
    shape: tuple[int, ...]

    @property
    def nbytes(self) -> int:
        """Bytes of the whole transfer."""
        return prod(self.shape) * self.dtype.itemsize


def chunk_size(nbytes: int, count: int) -> int:
    """Return the bytes of each chunk but the last when `nbytes` are cut into `count`."""
    return -(-nbytes // count)


def chunk_count(nbytes: int, chunk_bytes: int) -> int:
    """Return how many chunks of at most `chunk_bytes` carry `nbytes` (at least one)."""
    return max(1, -(-nbytes // chunk_bytes))


def split(
    tensor: torch.Tensor, *, session: int, epoch: int, inference: int, schedule: int,
    transfer: int, value: int, region: Region, chunk_bytes: int, stamp: Stamp = NO_STAMP,
) -> Iterator[Chunk]:
    """
    Cut a transfer into chunks of at most `chunk_bytes` bytes, in order.

    The chunks share the tensor's memory where it is dense and row-major:
    leave it unchanged until they are sent.

    Raises
    ------
    ValueError
        If `chunk_bytes` is not positive or above `MAX_CHUNK_BYTES`, or the
        dtype cannot cross the link.

    """
    if not 0 < chunk_bytes <= MAX_CHUNK_BYTES:
        raise ValueError(f'chunk_bytes must be 1..{MAX_CHUNK_BYTES}, got {chunk_bytes}')
    code, bits = encode_dtype(tensor.dtype)
    data = tensor_bytes(tensor)
    count = chunk_count(data.nbytes, chunk_bytes)
    size = chunk_size(data.nbytes, count)
    for index in range(count):
        yield Chunk(
            session=session, epoch=epoch, inference=inference, schedule=schedule,
            transfer=transfer, value=value, start=region.start, stop=region.stop,
            chunk=index, count=count, dtype_code=code, dtype_bits=bits, codec=CODEC_NONE,
            shape=tuple(tensor.shape), data=data[index * size:(index + 1) * size], stamp=stamp)


def check_chunk(chunk: Chunk, expected: ExpectedTransfer) -> None:
    """
    Compare every claim of a chunk with what its transfer must carry.

    Raises
    ------
    MalformedFrameError
        If anything disagrees; the text names it.

    """
    claims = (
        ('codec', chunk.codec in CODECS, chunk.codec, sorted(CODECS)),
        ('value', chunk.value == expected.value, chunk.value, expected.value),
        ('region', (chunk.start, chunk.stop) == expected.region,
         (chunk.start, chunk.stop), tuple(expected.region)),
        ('dtype', (chunk.dtype_code, chunk.dtype_bits) == encode_dtype(expected.dtype),
         (chunk.dtype_code, chunk.dtype_bits), expected.dtype),
        ('shape', chunk.shape == expected.shape, chunk.shape, expected.shape))
    for name, right, got, wanted in claims:
        if not right:
            raise MalformedFrameError(
                f'transfer {chunk.transfer} has {name} {got}, expected {wanted}', name)
    _check_extent(chunk, expected.nbytes)


def _check_extent(chunk: Chunk, nbytes: int) -> None:
    """Check that this chunk of this count carries exactly the bytes it must."""
    count = chunk.count
    if count < 1 or chunk_count(nbytes, max(1, chunk_size(nbytes, count))) != count:
        raise MalformedFrameError(f'{nbytes} bytes cannot be {count} chunks', 'count')
    if not 0 <= chunk.chunk < count:
        raise MalformedFrameError(f'chunk {chunk.chunk} of {count}', 'index')
    size = chunk_size(nbytes, count)
    wanted = min(size, nbytes - chunk.chunk * size)
    if memoryview(chunk.data).nbytes != wanted:
        raise MalformedFrameError(
            f'chunk {chunk.chunk} of {count} has {memoryview(chunk.data).nbytes} bytes, '
            f'expected {wanted}', 'size')


class _Assembly:
    """A transfer of which some chunks have come."""

    def __init__(self, first: Chunk, expected: ExpectedTransfer) -> None:
        self.expected = expected
        self._origin = (first.epoch, first.schedule, first.count)
        self._here = bytearray(first.count)  # no more than the transfer's own bytes
        self._missing = first.count
        self._size = chunk_size(expected.nbytes, first.count)
        self._buffer: npt.NDArray[np.uint8] = np.empty(expected.nbytes, dtype=np.uint8)

    def belongs(self, chunk: Chunk) -> bool:
        """Tell whether the chunk was cut in the same way as those before it."""
        return self._origin == (chunk.epoch, chunk.schedule, chunk.count)

    def holds(self, chunk: Chunk) -> bool:
        """Tell whether the chunk was here before."""
        return bool(self._here[chunk.chunk])

    def put(self, chunk: Chunk) -> bool:
        """Store a checked chunk; return whether the transfer is now complete."""
        self._here[chunk.chunk] = 1
        self._missing -= 1
        start = chunk.chunk * self._size
        data = np.frombuffer(chunk.data, dtype=np.uint8)
        self._buffer[start:start + data.size] = data
        return self._missing == 0

    def tensor(self) -> torch.Tensor:
        """Return the complete transfer."""
        return tensor_from_bytes(self._buffer, self.expected.dtype, self.expected.shape)


def _repeated(chunk: Chunk) -> MalformedFrameError:
    return MalformedFrameError(
        f'chunk {chunk.chunk} of transfer {chunk.transfer} was here before', 'repeated')


@dataclass
class _Inference:
    """Transfers of one inference: under way, and those handed over already."""

    open: dict[int, _Assembly] = field(default_factory=dict)
    done: set[int] = field(default_factory=set)


class Reassembler:
    """
    Puts the chunks of one session together; safe to call from several threads.

    `expected` says what the receiver's schedule awaits under a chunk's
    epoch, schedule, inference and transfer, or None if nothing.  At most
    `max_inferences` inferences are open at a time: a newer one displaces the
    oldest, and from then on chunks of inferences that old are refused.
    """

    def __init__(
        self, expected: Callable[[Chunk], ExpectedTransfer | None], max_inferences: int = 4,
    ) -> None:
        if max_inferences < 1:
            raise ValueError(f'max_inferences must be at least 1, got {max_inferences}')
        self._expected = expected
        self._max_inferences = max_inferences
        self._open: dict[int, _Inference] = {}
        self._displaced = -1
        self._dropped: deque[int] = deque(maxlen=_REMEMBERED_DROPS)
        self._lock = threading.Lock()

    def add(self, chunk: Chunk) -> torch.Tensor | None:
        """
        Take one chunk; return the transfer if this completes it.

        Raises
        ------
        MalformedFrameError
            If the chunk disagrees with the schedule, was here before, or
            its inference is dropped.  Nothing is reserved or stored then.

        """
        expected = self._expected(chunk)
        if expected is None:
            raise MalformedFrameError(
                f'nothing is expected as transfer {chunk.transfer} of schedule {chunk.schedule}, '
                f'inference {chunk.inference}, epoch {chunk.epoch}', 'unexpected')
        check_chunk(chunk, expected)
        with self._lock:
            return self._store(chunk, expected)

    def drop(self, inference: int) -> None:
        """Forget an inference; its late chunks are refused."""
        with self._lock:
            self._open.pop(inference, None)
            self._dropped.append(inference)

    @property
    def open_inferences(self) -> tuple[int, ...]:
        """Inferences of which chunks are held, ascending."""
        with self._lock:
            return tuple(sorted(self._open))

    def _store(self, chunk: Chunk, expected: ExpectedTransfer) -> torch.Tensor | None:
        inference = self._inference(chunk.inference)
        if chunk.transfer in inference.done:
            raise _repeated(chunk)
        assembly = inference.open.get(chunk.transfer)
        if assembly is None:
            assembly = inference.open[chunk.transfer] = _Assembly(chunk, expected)
        if not assembly.belongs(chunk):
            raise MalformedFrameError(
                f'transfer {chunk.transfer} was cut differently in its earlier chunks', 'count')
        if assembly.holds(chunk):
            raise _repeated(chunk)
        if not assembly.put(chunk):
            return None
        inference.done.add(chunk.transfer)
        return inference.open.pop(chunk.transfer).tensor()

    def _inference(self, inference: int) -> _Inference:
        """Return the record of an inference, displacing the oldest if there are too many."""
        if inference in self._open:
            return self._open[inference]
        oldest = min(self._open, default=inference)
        full = len(self._open) == self._max_inferences
        if (inference <= self._displaced or inference in self._dropped
                or (full and inference < oldest)):
            raise MalformedFrameError(f'inference {inference} is over', 'stale')
        if full:
            self._displaced = oldest
            del self._open[oldest]
        return self._open.setdefault(inference, _Inference())
