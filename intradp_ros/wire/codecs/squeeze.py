# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""
Zstandard frames of a size that the receiver knows beforehand.

A frame that claims another size is refused before anything is reserved for
it, so what it could swell to does not matter.
"""
from __future__ import annotations

from functools import cache, partial
import threading
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from intradp_ros.wire.frames import MalformedFrameError

if TYPE_CHECKING:
    import zstandard

Bytes = npt.NDArray[np.uint8]
#: Higher levels are slower and hardly smaller on activations.
LEVEL = 1
malformed = partial(MalformedFrameError, cause='codec')


class _Contexts(threading.local):
    """Contexts are kept, as making one costs more than a chunk; they are for one thread each."""

    def __init__(self) -> None:
        import zstandard
        self.compressor: zstandard.ZstdCompressor = zstandard.ZstdCompressor(level=LEVEL)
        self.decompressor: zstandard.ZstdDecompressor = zstandard.ZstdDecompressor()


@cache
def _own() -> _Contexts:
    return _Contexts()


def squeeze(data: npt.NDArray[np.uint8]) -> bytes:
    """Return bytes as one frame."""
    return _own().compressor.compress(data.data)


def unsqueeze(data: memoryview, nbytes: int) -> Bytes:
    """
    Return the bytes of a frame, of which there must be so many.

    :raises MalformedFrameError: if it is not a frame, or one of another size.
    """
    import zstandard
    try:
        claimed = zstandard.frame_content_size(data)
        if claimed != nbytes:
            raise malformed(f'a zstd frame of {claimed} bytes, expected {nbytes}')
        found = _own().decompressor.decompress(data, allow_extra_data=False)
    except zstandard.ZstdError as error:
        raise malformed(f'no zstd frame: {error}') from error
    if len(found) != nbytes:  # a frame may be empty whatever it claims
        raise malformed(f'a zstd frame held {len(found)} bytes, expected {nbytes}')
    return np.frombuffer(found, dtype=np.uint8)
