# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""Encodings that find repetitions: whatever the elements mean."""
from __future__ import annotations

import numpy as np
import torch

from intradp_ros.wire.codecs.codec import Codec
from intradp_ros.wire.codecs.names import LZ4, ZSTD
from intradp_ros.wire.codecs.patterns import Bytes
from intradp_ros.wire.codecs.squeeze import malformed, squeeze, unsqueeze


def _any(dtype: torch.dtype) -> bool:
    return True


def _encode_zstd(raw: Bytes, dtype: torch.dtype) -> bytes:
    return squeeze(raw)


def _decode_zstd(data: memoryview, nbytes: int, dtype: torch.dtype) -> Bytes:
    return unsqueeze(data, nbytes)


def _encode_lz4(raw: Bytes, dtype: torch.dtype) -> bytes:
    import lz4.block
    encoded: bytes = lz4.block.compress(raw.data, store_size=False)
    return encoded


def _decode_lz4(data: memoryview, nbytes: int, dtype: torch.dtype) -> Bytes:
    import lz4.block
    try:
        found = lz4.block.decompress(data, uncompressed_size=nbytes)
    except lz4.block.LZ4BlockError as error:
        raise malformed(f'no lz4 block: {error}') from error
    if len(found) != nbytes:
        raise malformed(f'an lz4 block held {len(found)} bytes, expected {nbytes}')
    return np.frombuffer(found, dtype=np.uint8)


zstd = Codec(ZSTD, 'zstandard', _any, _encode_zstd, _decode_zstd)
lz4_block = Codec(LZ4, 'lz4', _any, _encode_lz4, _decode_lz4)
