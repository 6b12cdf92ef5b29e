# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""Chunks of one inference on their way into its mailbox, with the time each transfer took."""
from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
import time

from intradp_ros.runtime.transport.mailbox import Mailbox
from intradp_ros.runtime.transport.timeline import Event
from intradp_ros.runtime.transport.traffic import Traffic
from intradp_ros.wire.chunking import Reassembler
from intradp_ros.wire.frames import Chunk


@dataclass
class Arrivals:
    """
    Feeds a mailbox from chunks.

    `lane` names the direction of the link for the timeline, `names` the
    schedule's transfers.  Encoded chunks are decoded on the thread that calls
    `add`.
    """

    mailbox: Mailbox
    reassembler: Reassembler
    lane: str
    names: Sequence[str]
    traffic: Traffic
    events: list[Event] = field(default_factory=list)
    nbytes: int = 0
    _first: dict[int, float] = field(default_factory=dict)

    def add(self, chunk: Chunk) -> None:
        """
        Take one chunk; deliver its transfer once it is complete.

        :raises MalformedFrameError: if the chunk is not what the schedule expects.
        """
        now = time.monotonic()
        tensor = self.reassembler.add(chunk)
        self._first.setdefault(chunk.transfer, now)
        self.nbytes += self.traffic.count(chunk)
        if tensor is not None:
            self.events.append(Event(self.lane, 'transfer', self.names[chunk.transfer],
                                     self._first[chunk.transfer], time.monotonic()))
            self.mailbox.deliver(chunk.transfer, tensor)
