# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""A robot's channel over real DDS, and a server in a process of its own that echoes tensors."""
from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
import subprocess
import sys
import threading
import time
from typing import Any

import rclpy
import torch

from intradp_ros.dds.dds_channel import DdsChannel
from intradp_ros.split.regions.region import Region
from intradp_ros.wire.chunking import ExpectedTransfer, Reassembler
from intradp_ros.wire.cutting import cut_into_chunks
from intradp_ros.wire.frames import Chunk, Control, ControlKind, Frame

PEER = Path(__file__).parent / 'dds' / 'echo_peer.py'
PATIENCE = 60.0


def expected(chunk: Chunk) -> ExpectedTransfer:
    """Expect as many floats as the value id says."""
    return ExpectedTransfer(chunk.value, Region(0, 1), torch.float32, (chunk.value,))


def cut(tensor: torch.Tensor, session: int, inference: int, chunk_bytes: int) -> Iterator[Chunk]:
    """Cut a tensor as `expected` expects it."""
    return cut_into_chunks(tensor, session=session, epoch=0, inference=inference, schedule=0,
                           transfer=0,
                           value=tensor.numel(), region=Region(0, 1), chunk_bytes=chunk_bytes)


class Robot:
    """A channel and what came over it."""

    def __init__(self, context: rclpy.Context, session: int = 5, **options: Any) -> None:
        self.channel = DdsChannel(context, **options)
        self.session = session
        self.tensors: dict[int, torch.Tensor] = {}
        self.pongs: list[Control] = []
        self._pile = Reassembler(expected)
        self._changed = threading.Condition()
        self.channel.listen(self._take)

    def _take(self, frame: Frame) -> None:
        if frame.session != self.session:
            return
        with self._changed:
            if isinstance(frame, Control):
                self.pongs.append(frame)
            elif (tensor := self._pile.add(frame)) is not None:
                self.tensors[frame.inference] = tensor
            self._changed.notify()

    def wait(self, condition: Callable[[], bool], seconds: float = PATIENCE) -> bool:
        """Wait until something that came fulfils the condition."""
        with self._changed:
            return self._changed.wait_for(condition, seconds)

    def ping(self, robots: int = 1) -> Control:
        """Ask until there is an answer, and chunks find so many robots, and the server."""
        known, end = len(self.pongs), time.monotonic() + PATIENCE
        while time.monotonic() < end:
            self.channel.send(Control(ControlKind.PING, self.session))
            if (self.wait(lambda: len(self.pongs) > known, 0.2) and self.channel.peers
                    and self.pongs[-1].body['robots'] >= robots):
                return self.pongs[-1]
        raise AssertionError('the other side does not answer')

    def send(self, tensor: torch.Tensor, inference: int) -> None:
        """Send a tensor."""
        for chunk in cut(tensor, self.session, inference, self.channel.chunk_bytes):
            self.channel.send(chunk)

    def echo(self, tensor: torch.Tensor, inference: int) -> torch.Tensor:
        """Send a tensor and return what comes back."""
        self.send(tensor, inference)
        assert self.wait(lambda: inference in self.tensors), self.channel.report()
        return self.tensors[inference]


@contextmanager
def peer() -> Iterator[subprocess.Popen[bytes]]:
    """Run the other side; kill it, as suddenly as a power cut, in the end."""
    process = subprocess.Popen([sys.executable, str(PEER)])
    try:
        yield process
    finally:
        process.kill()
        process.wait()
