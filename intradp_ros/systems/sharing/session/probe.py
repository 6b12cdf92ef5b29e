# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""A few chunks that carry nothing, by which the link's rate stays known."""
from __future__ import annotations

from collections.abc import Iterable
import math

import torch

from intradp_ros.split.regions.region import Region
from intradp_ros.wire.cutting import cut_into_chunks
from intradp_ros.wire.frames import Chunk

PROBE_AFTER = 0.5  # seconds without a measurement after which the link is probed
PROBE_SECONDS = 0.02  # of the link that a probe takes, by the last rate
PROBE_BYTES = (12_000, 90_000)  # but no fewer and no more; the most if no rate is known
_PROBE_CHUNKS = 3  # at least: the first says nothing


class Probe:
    """Says when to probe; times are seconds of a steady clock."""

    def __init__(self) -> None:
        self._probed = -math.inf

    def due(self, age: float, now: float) -> bool:
        """Return whether to probe now, if the rate was measured `age` seconds ago."""
        if min(age, now - self._probed) < PROBE_AFTER:
            return False
        self._probed = now
        return True


def probe_chunks(rate: float, chunk_bytes: int, session: int, epoch: int, server: int,
                 ) -> Iterable[Chunk]:
    """Return the chunks of a probe for a link of that rate in bytes per second, 0 if unknown."""
    least, most = PROBE_BYTES
    wanted = int(rate * PROBE_SECONDS) or most
    padding = torch.zeros(min(max(wanted, least), most), dtype=torch.uint8)
    return cut_into_chunks(padding, session=session, epoch=epoch, inference=0, schedule=0,
                           transfer=0, value=0, region=Region(0, 0), server=server,
                           chunk_bytes=min(chunk_bytes, len(padding) // _PROBE_CHUNKS))
