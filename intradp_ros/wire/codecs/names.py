# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""Names of the encodings that a transfer may cross the link in, and their numbers there."""
from __future__ import annotations

NONE = 'none'
ZSTD = 'zstd'
LZ4 = 'lz4'
FLOATS = 'floats'
DELTA = 'delta'
BITS = 'bits'
FP16 = 'fp16'
INT8 = 'int8'
#: What arrives is what was sent, bit by bit.
LOSSLESS = (NONE, ZSTD, LZ4, FLOATS, DELTA, BITS)
#: What arrives is close to what was sent; only where the user asked for it.
LOSSY = (FP16, INT8)
#: All encodings; a chunk names its own by the index here.
ENCODINGS = LOSSLESS + LOSSY
