# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""Bytes that crossed the link by encoding, and what they would have been plain."""
from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from math import prod
import threading

from intradp_ros.wire.codecs.names import ENCODINGS
from intradp_ros.wire.cutting import chunk_extent
from intradp_ros.wire.frames import Chunk


@dataclass
class Traffic:
    """Counts the chunks of one direction; safe to use from several threads."""

    _crossed: Counter[str] = field(default_factory=Counter)
    _plain: Counter[str] = field(default_factory=Counter)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def count(self, chunk: Chunk) -> int:
        """Count a chunk (its claims are right) and return its bytes on the link."""
        name, nbytes = ENCODINGS[chunk.codec], memoryview(chunk.data).nbytes
        start, stop = chunk_extent(chunk.chunk, chunk.count, prod(chunk.shape),
                                   chunk.dtype_bits // 8)
        with self._lock:
            self._crossed[name] += nbytes
            self._plain[name] += stop - start
        return nbytes

    def by_encoding(self) -> Mapping[str, tuple[int, int]]:
        """Return for each encoding seen so far its bytes on the link, and plain."""
        with self._lock:
            return {name: (crossed, self._plain[name]) for name, crossed in self._crossed.items()}
