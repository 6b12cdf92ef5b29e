# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""
A server in a process of its own, for the tests of the channel.

It answers PING with what it counted and what memory it takes, and returns
every float tensor with 1 added.  The value id of a transfer says how many
elements it has.
"""
from __future__ import annotations

from pathlib import Path
import threading

import rclpy
import torch

from intradp_ros.dds.dds_channel import DdsChannel
from intradp_ros.split.regions.region import Region
from intradp_ros.wire.chunking import ExpectedTransfer, Reassembler
from intradp_ros.wire.cutting import cut_into_chunks
from intradp_ros.wire.frames import Chunk, Control, ControlKind, Frame

LARGEST = 4_000_000


def expected(chunk: Chunk) -> ExpectedTransfer | None:
    """Expect any number of floats up to the largest."""
    if chunk.value > LARGEST:
        return None
    return ExpectedTransfer(chunk.value, Region(0, 1), torch.float32, (chunk.value,))


def resident_kb() -> int:
    """Return the memory of this process."""
    status = Path('/proc/self/status').read_text()
    return next(int(line.split()[1]) for line in status.splitlines()
                if line.startswith('VmRSS'))


def main() -> None:
    """Run until killed."""
    torch.set_num_threads(1)
    context = rclpy.Context()
    rclpy.init(context=context)
    channel = DdsChannel(context, 'offload', 'server')
    piles: dict[int, Reassembler] = {}

    def take(frame: Frame) -> None:
        if isinstance(frame, Control):
            channel.send(Control(ControlKind.PONG, frame.session, body={
                'rejected': dict(channel.rejected), 'resident_kb': resident_kb(),
                'robots': channel.peers}))
            return
        if frame.session not in piles and len(piles) > 8:
            piles.clear()
        tensor = piles.setdefault(frame.session, Reassembler(expected)).add(frame)
        if tensor is not None:
            for chunk in cut_into_chunks(tensor + 1, session=frame.session, epoch=frame.epoch,
                                         inference=frame.inference, schedule=0, transfer=0,
                                         value=tensor.numel(), region=Region(0, 1),
                                         chunk_bytes=channel.chunk_bytes):
                channel.send(chunk)

    channel.listen(take)
    threading.Event().wait()


if __name__ == '__main__':
    main()
