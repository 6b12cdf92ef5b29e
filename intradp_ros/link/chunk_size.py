# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""
How many bytes a message should carry on a link.

A message costs both sides some half a millisecond of a processor and hardly
more for its bytes, so fast links want large ones.  On slow links small ones
tell the rate of short transfers, and less is lost or under way with each.
"""
from __future__ import annotations

#: What a channel cuts by default while the link is slow, or not known; and no chunk has more.
LEAST_CHUNK_BYTES, MAX_CHUNK_BYTES = 15_000, 122_880
#: The most that suits any transport.
USUAL_CHUNK_BYTES = 61_440
#: Seconds of the link that one chunk should fill.
CHUNK_SECONDS = 2.5e-3


def chunk_bytes_at(rate: float, least: int = LEAST_CHUNK_BYTES, most: int = USUAL_CHUNK_BYTES,
                   ) -> int:
    """Return the bytes of a chunk on a link of `rate` bytes per second (0.0 if unknown)."""
    return int(max(min(rate * CHUNK_SECONDS, most), least))
