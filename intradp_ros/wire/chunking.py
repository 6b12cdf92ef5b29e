# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""
Putting the chunks of a transfer back together.

The receiver knows from its schedule what must come: a chunk is only ever
compared with that, and memory is reserved for what is expected, never for
what a message claims.
"""
from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from math import prod
import threading

import numpy as np
import torch

from intradp_ros.link.chunk_size import MAX_CHUNK_BYTES
from intradp_ros.split.regions.region import Region
from intradp_ros.wire.codecs.names import NONE
from intradp_ros.wire.codecs.patterns import Bytes
from intradp_ros.wire.codecs.registry import available, CODECS, most_elements, NUMBERS
from intradp_ros.wire.cutting import chunk_count, chunk_extent, chunk_size, CODEC_NONE
from intradp_ros.wire.dtypes import encode_dtype
from intradp_ros.wire.frames import Chunk, MalformedFrameError
from intradp_ros.wire.tensors import tensor_from_bytes

_REMEMBERED_DROPS = 64
#: The cause of rejecting a chunk that was here before with other bytes.
TAMPERED = 'tampered'


@dataclass(frozen=True, slots=True)
class ExpectedTransfer:
    """
    What the receiver's own schedule says that a transfer carries: rows of a value.

    `encoding` is the only one that chunks may come in, other than plain.
    """

    value: int
    region: Region
    dtype: torch.dtype
    shape: tuple[int, ...]
    encoding: str = NONE

    @property
    def elements(self) -> int:
        """Elements of the whole transfer."""
        return prod(self.shape)

    @property
    def nbytes(self) -> int:
        """Bytes of the whole transfer."""
        return self.elements * self.dtype.itemsize


def check_chunk(chunk: Chunk, expected: ExpectedTransfer) -> None:
    """
    Compare every claim of a chunk with what its transfer must carry.

    :raises MalformedFrameError: if anything disagrees; the text names it.
    """
    claims = (
        ('codec', chunk.codec in (CODEC_NONE, NUMBERS[expected.encoding]), chunk.codec,
         expected.encoding),
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
    _check_extent(chunk, expected)


def _check_extent(chunk: Chunk, expected: ExpectedTransfer) -> None:
    """Check that this chunk of this count carries as much as it must."""
    count, elements = chunk.count, expected.elements
    if count < 1 or chunk_count(elements, max(1, chunk_size(elements, count))) != count:
        raise MalformedFrameError(f'{elements} elements cannot be {count} chunks', 'count')
    if not 0 <= chunk.chunk < count:
        raise MalformedFrameError(f'chunk {chunk.chunk} of {count}', 'index')
    start, stop = _extent(chunk, expected)
    given, wanted = memoryview(chunk.data).nbytes, stop - start
    if given != wanted if chunk.codec == CODEC_NONE else not 0 < given < wanted:
        raise MalformedFrameError(
            f'chunk {chunk.chunk} of {count} has {given} bytes for {wanted}', 'size')
    if chunk.codec != CODEC_NONE:
        _check_codec(wanted, expected)


def _check_codec(wanted: int, expected: ExpectedTransfer) -> None:
    """Check that so many bytes can have been encoded into one chunk, and be decoded here."""
    if expected.encoding not in available():
        raise MalformedFrameError(f'this side has no library for {expected.encoding}', 'codec')
    codec = CODECS[expected.encoding]
    if not codec.takes(expected.dtype):
        raise MalformedFrameError(f'{codec.name} takes no {expected.dtype}', 'codec')
    if wanted > most_elements(codec, expected.dtype, MAX_CHUNK_BYTES) * expected.dtype.itemsize:
        raise MalformedFrameError(f'{wanted} bytes are too many for one chunk', 'size')


def _extent(chunk: Chunk, expected: ExpectedTransfer) -> tuple[int, int]:
    """Return the bytes of the transfer that a chunk stands for."""
    return chunk_extent(chunk.chunk, chunk.count, expected.elements, expected.dtype.itemsize)


class _Assembly:
    """A transfer of which some chunks have come."""

    def __init__(self, first: Chunk, expected: ExpectedTransfer) -> None:
        self.expected = expected
        self._origin = (first.epoch, first.schedule, first.count)
        self._given: list[Chunk | None] = [None] * first.count  # what came, for comparison
        self._missing = first.count
        self._buffer: Bytes = np.empty(expected.nbytes, dtype=np.uint8)

    def check_new(self, chunk: Chunk) -> None:
        """
        Check that a chunk was cut as those before it, and was not here before.

        :raises MalformedFrameError: if not; with the cause `TAMPERED` if another was in its place.
        """
        if self._origin != (chunk.epoch, chunk.schedule, chunk.count):
            raise MalformedFrameError(
                f'transfer {chunk.transfer} was cut differently in its earlier chunks', 'count')
        given = self._given[chunk.chunk]
        if given is None:
            return
        if (given.codec, bytes(given.data)) != (chunk.codec, bytes(chunk.data)):
            raise MalformedFrameError(f'chunk {chunk.chunk} of transfer {chunk.transfer} came '
                                      'before with other bytes', TAMPERED)
        raise MalformedFrameError(
            f'chunk {chunk.chunk} of transfer {chunk.transfer} was here before', 'repeated')

    def put(self, chunk: Chunk) -> bool:
        """
        Store a checked chunk; return whether the transfer is now complete.

        :raises MalformedFrameError: if it cannot be decoded; nothing is stored then.
        """
        start, stop = _extent(chunk, self.expected)
        self._buffer[start:stop] = _decoded(chunk, stop - start, self.expected)
        self._given[chunk.chunk] = chunk
        self._missing -= 1
        return self._missing == 0

    def tensor(self) -> torch.Tensor:
        """Return the complete transfer, and let go of it."""
        buffer, self._buffer = self._buffer, np.empty(0, dtype=np.uint8)
        return tensor_from_bytes(buffer, self.expected.dtype, self.expected.shape)


def _decoded(chunk: Chunk, nbytes: int, expected: ExpectedTransfer) -> Bytes:
    if chunk.codec == CODEC_NONE:
        return np.frombuffer(chunk.data, dtype=np.uint8)
    data = memoryview(chunk.data).cast('B')
    return CODECS[expected.encoding].decode(data, nbytes, expected.dtype)


@dataclass
class _Inference:
    """Transfers of one inference: in flight, and those handed over already."""

    open: dict[int, _Assembly] = field(default_factory=dict)
    done: dict[int, _Assembly] = field(default_factory=dict)


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

        :raises MalformedFrameError: if the chunk disagrees with the schedule, was here before,
            cannot be decoded, or its inference is dropped.  It is not stored then.
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
            inference.done[chunk.transfer].check_new(chunk)
        assembly = inference.open.get(chunk.transfer)
        if assembly is None:
            assembly = inference.open[chunk.transfer] = _Assembly(chunk, expected)
        assembly.check_new(chunk)
        if not assembly.put(chunk):
            return None
        inference.done[chunk.transfer] = inference.open.pop(chunk.transfer)
        return assembly.tensor()

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
