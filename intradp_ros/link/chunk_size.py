# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""
How many bytes a message should carry on a link.

A message costs both sides some half a millisecond of a processor, with its
acknowledgement, and hardly more for its bytes, so links that are not slow want large ones.  On
slow links small ones show the rate of short transfers, and less is lost or under
way with each.  These are bytes on the link: what an encoding makes smaller is
cut into larger pieces.
"""
from __future__ import annotations

#: What a channel cuts by default while the link is slow, or not known; and no chunk has more.
LEAST_CHUNK_BYTES, MAX_CHUNK_BYTES = 15_000, 122_880
#: The most that suits any transport.
USUAL_CHUNK_BYTES = 61_440
#: Seconds of the link that one chunk should fill: of any link, up to so many bytes; beyond, less,
#: since both sides hold two, and long queues make a reliable transport repeat in vain.
CHUNK_SECONDS, EASY_BYTES, FAST_SECONDS = 12.5e-3, 30_000, 2.5e-3
#: How many times as many bytes a piece may have before it is encoded: the encoding may fail it.
MOST_SMALLER = 4.0


def chunk_bytes_at(rate: float, least: int = LEAST_CHUNK_BYTES, most: int = USUAL_CHUNK_BYTES,
                   ) -> int:
    """Return the bytes of a chunk on a link of `rate` bytes per second (0.0 if unknown)."""
    wanted = max(min(rate * CHUNK_SECONDS, EASY_BYTES), rate * FAST_SECONDS)
    return int(max(min(wanted, most), least))


def plain_bytes_at(chunk_bytes: int, ratio: float) -> int:
    """Return how many bytes to encode for a chunk, if `ratio` of them are expected to be left."""
    return min(int(chunk_bytes / max(ratio, 1 / MOST_SMALLER)), MAX_CHUNK_BYTES)
