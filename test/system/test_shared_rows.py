# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""Robot and server as processes over DDS share the rows of every stage, exactly."""
from __future__ import annotations

from dataclasses import replace
from pathlib import Path
import signal
import time

from node_processes import (
    DENSE,
    LATCHED,
    nodes,
    Observer,
    own_domain,
    PATIENT,
    picture,
    relative_difference,
    unsplit,
)
from sharing import hand_made_book
import small_models
import torch

from intradp_ros.msg import ScheduleBook
from intradp_ros.runtime.models.model import share_module
from intradp_ros.schedule.schedule import SIDES
from intradp_ros.systems.sharing.partition.lowering import lower
from intradp_ros.systems.sharing.strategies import (
    OFFLOAD,
    SHARED,
)
from intradp_ros.wire.texts import packed

FRAMES = 8
STOPS = 0.2, 0.35, 0.5  # seconds for which the server stands still in an inference


def test_rows_of_every_stage_cross_both_ways(tmp_path: Path) -> None:
    """
    The book is made by hand and names rows what the mode asks for: else one side may do all.

    A server that stands still for a moment costs no frame, and takes part again.
    """
    module = small_models.dense()
    model = share_module(module, (torch.from_numpy(picture(0)).permute(2, 0, 1)[None],))
    book = hand_made_book(model, predicted=0.002)
    rows = next(e.partition for e in book.entries if e.strategy == SHARED)
    book = replace(book, entries=tuple(
        replace(e, partition=rows) if e.strategy == OFFLOAD else e for e in book.entries))
    schedule = lower(model.split, rows)
    crossing = tuple(sum(model.split.nbytes(t.value, t.region.rows)
                         for t in schedule.between(*sides)) for sides in (SIDES, SIDES[::-1]))
    with own_domain(tmp_path), nodes(tmp_path / 'logs') as running:
        observer = Observer()
        try:
            server = running.start('offload_node', {'models': [DENSE]})
            running.start('inference_node', {'model': DENSE, **PATIENT})
            assert observer.set_mode('offload')[0]
            publisher = observer.node.create_publisher(ScheduleBook, 'schedule_book', LATCHED)
            publisher.publish(ScheduleBook(
                epoch=1, digest=book.digest, book=packed(book.to_json())))
            observer.infer_until(picture(0), module, lambda s: s.shared and s.strategy == OFFLOAD)
            for seed in range(1, 1 + FRAMES):
                pixels = picture(seed)
                result, stats = observer.infer(pixels)
                assert relative_difference(result, unsplit(module, pixels)) <= 1e-4
                assert (stats.strategy, stats.shared, stats.recovered) == (OFFLOAD, True, False)
                assert (stats.bytes_up, stats.bytes_down) == crossing
                assert stats.rejected == 0
            for seconds in STOPS:
                server.signal(signal.SIGSTOP)
                number = observer.publish(pixels)
                time.sleep(seconds)
                server.signal(signal.SIGCONT)
                assert relative_difference(
                    observer.answer(number)[0], unsplit(module, pixels)) <= 1e-4
                observer.infer_until(pixels, module, lambda s: s.shared)
        finally:
            observer.close()
