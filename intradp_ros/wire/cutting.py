# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""
Cutting a transfer into chunks.

The elements of a transfer are cut into `count` chunks of equal size (the last
one may be smaller), so that the count and the transfer's own size say where
each chunk belongs.

Each chunk is encoded by itself, and only if that makes it smaller: so it
crosses while the next one is encoded, and the receiver knows how many
elements it must give before it looks into it.
"""
from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import torch

from intradp_ros.link.chunk_size import MAX_CHUNK_BYTES
from intradp_ros.split.regions.region import Region
from intradp_ros.wire.codecs.codec import Codec
from intradp_ros.wire.codecs.names import NONE
from intradp_ros.wire.codecs.patterns import Bytes
from intradp_ros.wire.codecs.registry import CODECS, most_elements, NUMBERS
from intradp_ros.wire.dtypes import encode_dtype
from intradp_ros.wire.frames import Chunk, Stamp
from intradp_ros.wire.tensors import tensor_bytes

CODEC_NONE = NUMBERS[NONE]
NO_STAMP = Stamp()


def chunk_size(elements: int, count: int) -> int:
    """Return the elements of each chunk but the last when so many are cut into `count`."""
    return -(-elements // count)


def chunk_count(elements: int, most: int) -> int:
    """Return how many chunks of at most `most` carry so many elements (at least one)."""
    return max(1, -(-elements // most))


def chunk_extent(index: int, count: int, elements: int, itemsize: int) -> tuple[int, int]:
    """Return the bytes of the plain transfer that a chunk stands for, as start and stop."""
    size = chunk_size(elements, count) * itemsize
    return index * size, min((index + 1) * size, elements * itemsize)


def cut_into_chunks(
    tensor: torch.Tensor, *, session: int, epoch: int, inference: int, schedule: int,
    transfer: int, value: int, region: Region, chunk_bytes: int, stamp: Stamp = NO_STAMP,
    encoding: str = NONE, server: int = 0, ratio: float = 1.0,
) -> Iterator[Chunk]:
    """
    Cut a transfer into chunks of at most `chunk_bytes` bytes (or one element), in order.

    A chunk is encoded when it is asked for, if the tensor is one that the
    encoding can carry, and if that makes it smaller; otherwise it is plain.
    Where `ratio` of the bytes are expected to be left, pieces are as much larger
    before they are encoded (at most four times), and so are chunks if the
    encoding fails.
    Plain chunks share the tensor's memory where it is dense and row-major:
    leave it unchanged until they are sent.

    :raises ValueError: if `chunk_bytes` is not positive or above `MAX_CHUNK_BYTES`, or the dtype
        cannot cross the link.
    """
    if not 0 < chunk_bytes <= MAX_CHUNK_BYTES:
        raise ValueError(f'chunk_bytes must be 1..{MAX_CHUNK_BYTES}, got {chunk_bytes}')
    code, bits = encode_dtype(tensor.dtype)
    data = np.frombuffer(tensor_bytes(tensor), dtype=np.uint8)
    codec = _usable(encoding, data, tensor.dtype, chunk_bytes)
    most = max(1, most_elements(codec, tensor.dtype, chunk_bytes, ratio))
    count = chunk_count(tensor.numel(), most)
    for index in range(count):
        start, stop = chunk_extent(index, count, tensor.numel(), tensor.element_size())
        number, part = _encoded(codec, data[start:stop], tensor.dtype)
        yield Chunk(
            session=session, epoch=epoch, inference=inference, schedule=schedule,
            transfer=transfer, value=value, start=region.start, stop=region.stop,
            chunk=index, count=count, dtype_code=code, dtype_bits=bits, codec=number,
            shape=tuple(tensor.shape), data=part, stamp=stamp, server=server)


def _usable(encoding: str, data: Bytes, dtype: torch.dtype, chunk_bytes: int) -> Codec | None:
    """Return the codec if it can carry these elements in chunks of this size."""
    codec = CODECS.get(encoding)
    if codec and codec.takes(dtype) and most_elements(codec, dtype, chunk_bytes) \
            and codec.fits(data, dtype):
        return codec
    return None


def _encoded(codec: Codec | None, raw: Bytes, dtype: torch.dtype) -> tuple[int, memoryview]:
    """Return a chunk's data with the number of its codec."""
    if codec and raw.size:
        data = codec.encode(raw, dtype)
        if len(data) < raw.size:
            return NUMBERS[codec.name], memoryview(data)
    return CODEC_NONE, raw.data
