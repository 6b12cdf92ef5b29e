# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""Systems that take turns in one session: each begins when both sides have its own book."""
from __future__ import annotations

from dataclasses import replace
from pathlib import Path
import threading

from sharing import hand_made_book, sharing_pair
from small_models import seeded, UNet
import torch

from intradp_lab.testbed.phases import play_phase, prepare_phase
from intradp_lab.testbed.trial import Phase
from intradp_ros.runtime.models.model import share_module
from intradp_ros.systems.sharing.strategies import (
    SHARED,
)
from intradp_ros.wire.frames import Control, ControlKind, Frame


def test_a_system_never_runs_by_the_book_of_the_one_before(tmp_path: Path) -> None:
    """Even if the server takes its time to compile it; the session goes on meanwhile."""
    model = share_module(seeded(UNet, 32, 48), (torch.randn(1, 3, 32, 48),))
    first = hand_made_book(model)
    second = replace(first, entries=tuple(e for e in first.entries if e.strategy == SHARED))
    second.save(tmp_path / 'second.json')
    late = list[threading.Timer]()

    with sharing_pair(model, first) as pair:
        def delay_books(frame: Frame) -> None:
            if isinstance(frame, Control) and frame.kind is ControlKind.BOOK:
                late.append(threading.Timer(0.5, pair.server.handle, (frame,)))
                late[-1].start()
            else:
                pair.server.handle(frame)

        pair.server_channel.listen(delay_books)
        phase = Phase('shared', str(tmp_path / 'second.json'), SHARED, seconds=0.0)
        inputs = prepare_phase(pair.robot, phase)
        assert pair.robot.connection.book == second
        seen = play_phase(pair.robot, phase, inputs)
        for timer in late:
            timer.join()
    assert late and seen.schedule == [0] * len(seen.at) and all(seen.shared)
