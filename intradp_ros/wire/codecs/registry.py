# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""The encodings that there are, and those that this process can undo."""
from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from importlib.util import find_spec

import torch

from intradp_ros.link.chunk_size import plain_bytes_at
from intradp_ros.wire.codecs.bits import bits
from intradp_ros.wire.codecs.codec import Codec
from intradp_ros.wire.codecs.delta import delta
from intradp_ros.wire.codecs.floats import floats
from intradp_ros.wire.codecs.general import lz4_block, zstd
from intradp_ros.wire.codecs.lossy import eight_bits, half
from intradp_ros.wire.codecs.names import ENCODINGS

#: All but 'none', which needs no codec.
CODECS: Mapping[str, Codec] = {
    codec.name: codec for codec in (zstd, lz4_block, floats, delta, bits, half, eight_bits)}
NUMBERS: Mapping[str, int] = {name: number for number, name in enumerate(ENCODINGS)}
#: A bound on what zstd and heads add to what cannot be made smaller.
_MARGIN = 128


@cache
def available() -> frozenset[str]:
    """Return the names of the encodings whose modules this process has."""
    return frozenset(name for name, codec in CODECS.items() if find_spec(codec.module))


def most_elements(codec: Codec | None, dtype: torch.dtype, chunk_bytes: int,
                  ratio: float = 1.0) -> int:
    """
    Return how many elements are put into a chunk of at most so many bytes.

    An encoding with a fixed count of bits takes what is sure to fit, another what
    should fit where `ratio` of the bytes are expected to be left, but at most four times
    what fits plain.
    """
    if codec is None:
        return chunk_bytes // dtype.itemsize
    if codec.bits:
        return max(0, int((chunk_bytes - chunk_bytes // 64 - _MARGIN) * 8 / codec.bits))
    return plain_bytes_at(chunk_bytes, ratio) // dtype.itemsize


def piece_bytes(encoding: str, dtype: torch.dtype, chunk_bytes: int, ratio: float) -> int:
    """Return how many plain bytes go into a chunk (of 1 kB or more), as sides cut them."""
    return dtype.itemsize * most_elements(CODECS.get(encoding), dtype, chunk_bytes, ratio)
