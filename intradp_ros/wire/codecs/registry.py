# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""The encodings that there are, and those that this process can undo."""
from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from importlib.util import find_spec

import torch

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


def most_elements(codec: Codec | None, dtype: torch.dtype, nbytes: int) -> int:
    """Return how many elements may be put into a chunk of so many bytes, whatever they are."""
    if codec is None or not codec.bits:
        return nbytes // dtype.itemsize
    return max(0, int((nbytes - nbytes // 64 - _MARGIN) * 8 / codec.bits))
