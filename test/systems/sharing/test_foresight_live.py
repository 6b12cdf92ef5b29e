# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""Sessions choose ahead by a planned book, and every result is that of one process."""
from __future__ import annotations

import numpy as np
import pytest
from sharing import ENDLESS, infer_until_shared, SOURCE, TIMEOUT
import torch
from waiting import wait_for

from intradp_ros.link.predictor import make_predictor
from intradp_ros.runtime.models.model import SharedModel
from intradp_ros.schedule.cost import CostModel
from intradp_ros.schedule.schedule import ROBOT, SERVER
from intradp_ros.systems.sharing.book.book import ScheduleBook
from intradp_ros.systems.sharing.book.latency_calibration import LatencyCalibration
from intradp_ros.systems.sharing.book.make_book import make_book
from intradp_ros.systems.sharing.session.pair import in_process_pair

FRAMES, ALONE = 12, 20.0


def planned(model: SharedModel) -> ScheduleBook:
    """Return a book for a robot that takes that long alone, and a server that takes no time."""
    split = model.split
    cost = CostModel(split, {side: tuple(
        np.linspace(0, seconds / len(split.operators), op.rows + 1) for op in split.operators)
        for side, seconds in ((ROBOT, ALONE), (SERVER, 0.02))})
    return make_book(cost, model.digest, grid=(0.5, 50.0), delay=1e-3)


@pytest.mark.parametrize('experience', [None, LatencyCalibration()])
def test_frames_are_shared_by_what_may_come(
        model: SharedModel, wanted: torch.Tensor, experience: LatencyCalibration | None) -> None:
    book = planned(model)
    assert book.knows_catch_up
    with in_process_pair(model, make_predictor('ewma'), mbps=40.0,
                         patience=ENDLESS) as pair:
        robot = pair.robot
        robot.choice.experience = experience
        robot.use_book(book)
        assert robot.connection.wait_ready(TIMEOUT)
        wait_for(lambda: robot.predicted_rate > 0)
        for _ in range(FRAMES):
            outcome = infer_until_shared(robot, (SOURCE,), wanted)
            assert 0 < outcome.stats.predicted < ALONE
        assert 'choice' not in robot.rejections.by_cause()
