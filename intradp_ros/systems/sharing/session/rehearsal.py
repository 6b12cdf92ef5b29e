# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""One inference on two sides without a session: what a partition's encodings do to the outputs."""
from __future__ import annotations

from collections.abc import Mapping, Sequence
import threading

import torch

from intradp_ros.link.chunk_size import MAX_CHUNK_BYTES
from intradp_ros.runtime.execution.interpreter import Execution
from intradp_ros.runtime.models.model import SharedModel
from intradp_ros.runtime.transport.mailbox import Mailbox
from intradp_ros.runtime.transport.sending import expected_transfer
from intradp_ros.runtime.transport.timeline import Recorder
from intradp_ros.schedule.schedule import ROBOT, Schedule, SERVER, SIDES
from intradp_ros.split.checks.verify import output_error
from intradp_ros.systems.sharing.book.book import ScheduleBook
from intradp_ros.systems.sharing.book.program_cache import ProgramCache
from intradp_ros.systems.sharing.partition.partition import local, Partition
from intradp_ros.wire.chunking import Reassembler
from intradp_ros.wire.cutting import cut_into_chunks

Values = dict[int, torch.Tensor]
OTHER = {ROBOT: SERVER, SERVER: ROBOT}


def rehearse(model: SharedModel, partition: Partition, inputs: Sequence[torch.Tensor]) -> Values:
    """
    Run both programs of a partition, with every transfer encoded, cut and put together again.

    Returns the values that the robot delivers, by id.
    """
    compiled = {side: ProgramCache(model, side).get(partition) for side in SIDES}
    boxes = {side: Mailbox(lambda waited: None) for side in SIDES}
    runs = {side: Execution(compiled[side].program, Recorder(side), boxes[side],
                            _Link(model, compiled[side].schedule, OTHER[side], boxes[OTHER[side]]))
            for side in SIDES}

    def serve() -> None:
        try:
            runs[SERVER].run({})
        except Exception as error:  # whatever it is, the robot must not wait for ever
            boxes[ROBOT].fail(f'server: {type(error).__name__}: {error}')

    server = threading.Thread(target=serve, name='rehearsal')
    server.start()
    try:
        return runs[ROBOT].run(dict(zip(model.split.graph.inputs, inputs)))
    finally:
        boxes[SERVER].fail('the robot has ended')
        server.join()


class _Link:
    """Brings the transfers of one side to the other, at once."""

    def __init__(self, model: SharedModel, schedule: Schedule, target: str, box: Mailbox) -> None:
        self.schedule, self.box = schedule, box
        self.pile = Reassembler(
            lambda chunk: expected_transfer(model.split, schedule, chunk.transfer, target))

    def __call__(self, index: int, tensor: torch.Tensor) -> None:
        transfer = self.schedule.transfers[index]
        for chunk in cut_into_chunks(
                tensor, session=0, epoch=0, inference=0, schedule=0, transfer=index,
                value=transfer.value, region=transfer.region, chunk_bytes=MAX_CHUNK_BYTES,
                encoding=transfer.encoding):
            arrived = self.pile.add(chunk)
            if arrived is not None:
                self.box.deliver(index, arrived)


def lossy_difference(model: SharedModel, book: ScheduleBook, inputs: Sequence[torch.Tensor],
                     ) -> float:
    """
    Return the largest difference that a book's lossy encoding makes to an output.

    Relative to the output's spread, on these inputs, over all its partitions
    in which something crosses lossy.
    """
    partitions = {e.partition for e in book.entries if e.partition.lossy}
    wanted = rehearse(model, local(len(model.split.operators)), inputs)
    return max((_difference(rehearse(model, p, inputs), wanted) for p in partitions), default=0.0)


def _difference(got: Mapping[int, torch.Tensor], wanted: Mapping[int, torch.Tensor]) -> float:
    return max((output_error('', got[v], wanted[v]).relative for v in wanted), default=0.0)
