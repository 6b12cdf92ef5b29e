# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""
Proof that every chunk arrives as it was sent, in a run whose values mean nothing.

Emulated devices compute no numbers, so the bytes of their chunks are free:
the sending side writes a pattern into each, which follows from where the
chunk belongs, and the receiving side knows what must come.
"""
from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
import json
from pathlib import Path
from typing import TypeGuard

import numpy as np

from intradp_ros.core.atomic_write import write_atomically
from intradp_ros.link.chunk_size import MAX_CHUNK_BYTES
from intradp_ros.runtime.transport.channel import Channel
from intradp_ros.runtime.transport.session_channels import WrappedChannel
from intradp_ros.wire.cutting import CODEC_NONE
from intradp_ros.wire.frames import Chunk, Control, Frame

#: Chunks that belong elsewhere begin at another byte of the noise (a prime, so that all occur).
_STEPS = 65521
_NOISE = np.random.default_rng(5).bytes(_STEPS + MAX_CHUNK_BYTES)


@dataclass
class Arrived:
    """What came to one side: chunks and bytes that were checked, and chunks that were wrong."""

    chunks: int = 0
    nbytes: int = 0
    wrong: int = 0

    def save(self, path: Path) -> None:
        """Write the counts to a file."""
        write_atomically(path, json.dumps(asdict(self)))

    @classmethod
    def load(cls, path: Path) -> Arrived:
        """Read what `save` wrote."""
        return cls(**json.loads(path.read_text()))


def arrived_path(output: Path, side: str) -> Path:
    """Return where a side of the trial with this output leaves its counts."""
    return output.with_name(f'arrived-{side}.json')


def pattern(chunk: Chunk) -> memoryview:
    """Return the bytes that a chunk of this size carries at its place in its inference."""
    place = (chunk.inference * 7919 + chunk.transfer * 613 + chunk.chunk * 31) % _STEPS
    return memoryview(_NOISE)[place:place + memoryview(chunk.data).nbytes]


def _is_checked(frame: Frame) -> TypeGuard[Chunk]:
    """Return whether a frame carries values that nothing has encoded (probes have number 0)."""
    return isinstance(frame, Chunk) and frame.inference > 0 and frame.codec == CODEC_NONE


class CheckingChannel(WrappedChannel):
    """A channel that marks every chunk it sends and checks every one that comes."""

    def __init__(self, channel: Channel) -> None:
        super().__init__(channel)
        self.arrived = Arrived()

    def send(self, frame: Chunk | Control) -> None:
        """Queue one frame, a chunk with its pattern."""
        if _is_checked(frame):
            frame = replace(frame, data=pattern(frame))
        super().send(frame)

    def listen(self, handler: Callable[[Frame], None]) -> None:
        """Call `handler` with every frame from now on."""
        def check(frame: Frame) -> None:
            if _is_checked(frame):
                self._check(frame)
            handler(frame)
        self._channel.listen(check)

    def _check(self, chunk: Chunk) -> None:
        self.arrived.chunks += 1
        self.arrived.nbytes += memoryview(chunk.data).nbytes
        self.arrived.wrong += bytes(chunk.data) != bytes(pattern(chunk))
