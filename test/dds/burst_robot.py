# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""
A robot in a process of its own, for the tests of the channel on an emulated link.

For every line it reads it sends one tensor of 130 kB to `echo_peer` and says
in JSON whether it came back right within two seconds, and what the channel
measured.
"""
from __future__ import annotations

from dataclasses import asdict
import json
import sys
import threading
import time

import rclpy
import torch

from intradp_ros.dds.dds_channel import DdsChannel
from intradp_ros.split.regions.region import Region
from intradp_ros.wire.chunking import ExpectedTransfer, Reassembler
from intradp_ros.wire.cutting import cut_into_chunks
from intradp_ros.wire.frames import Control, ControlKind, Frame

ELEMENTS = 32_500
SESSION = 3
#: Seconds until it gives up greeting.
PATIENCE = 60.0


def main() -> None:
    """Greet the other side, then run until the input ends."""
    torch.set_num_threads(1)
    context = rclpy.Context()
    rclpy.init(context=context)
    channel = DdsChannel(context)
    expected = ExpectedTransfer(ELEMENTS, Region(0, 1), torch.float32, (ELEMENTS,))
    pile = Reassembler(lambda chunk: expected)
    greeted, changed, tensors = threading.Event(), threading.Condition(), {}

    def take(frame: Frame) -> None:
        if isinstance(frame, Control):
            greeted.set()
        elif (tensor := pile.add(frame)) is not None:
            with changed:
                tensors[frame.inference] = tensor
                changed.notify()

    channel.listen(take)
    until = time.monotonic() + PATIENCE
    while not greeted.wait(0.1):
        if time.monotonic() > until:  # over `large_data` some never find each other
            sys.exit(f'nobody answered for {PATIENCE:.0f} s')
        channel.send(Control(ControlKind.PING, SESSION))
    for number, _ in enumerate(sys.stdin):
        tensor = torch.rand(ELEMENTS)
        for chunk in cut_into_chunks(tensor, session=SESSION, epoch=0, inference=number,
                                     schedule=0, transfer=0, value=ELEMENTS, region=Region(0, 1),
                                     chunk_bytes=channel.chunk_bytes):
            channel.send(chunk)
        with changed:
            back = changed.wait_for(lambda n=number: n in tensors, 2.0)
        channel.abandon(SESSION, number)
        print(json.dumps({'back': back, 'right': back and torch.equal(
            tensors[number], tensor + 1), **asdict(channel.report())}), flush=True)
        time.sleep(0.05)


if __name__ == '__main__':
    main()
