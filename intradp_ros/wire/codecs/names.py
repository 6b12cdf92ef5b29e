# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""Names of the encodings that a transfer may cross the link in."""
from __future__ import annotations

NONE = 'none'
ZSTD = 'zstd'
BLOSC2 = 'blosc2'
LZ4 = 'lz4'
BITS = 'bits'
FP16 = 'fp16'
INT8 = 'int8'
#: What arrives is what was sent, bit by bit.
LOSSLESS = (NONE, ZSTD, BLOSC2, LZ4, BITS)
#: What arrives is close to what was sent; only where the user asked for it.
LOSSY = (FP16, INT8)
ENCODINGS = LOSSLESS + LOSSY
