# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""A pause: all devices leave after the same round, however late orders and reports are."""
from __future__ import annotations

import time

from training_fleet import difference, Faults, fixed, make_task, start

from intradp_lab.training.one_process import train_alone
from intradp_ros.systems.training.layers.layer_capture import capture
from intradp_ros.systems.training.run.weight_exchange import Exchange
from intradp_ros.systems.training.run.worker_settings import Settings
from intradp_ros.systems.training.service.round_commit import Phase, RoundCommit
from intradp_ros.systems.training.service.trainer import Trainer

DEVICES = ('a', 'b', 'c')


def test_all_leave_after_the_same_round_though_the_order_is_late():
    """The trainer sleeps while rounds go on: what it knows of them is old when it orders."""
    task = make_task(batch=12, rounds=150)
    graph, exchange = capture(task), Exchange('127.0.0.1')
    commit = RoundCommit(task.rounds, (1.0,) * len(graph.layers),
                         fixed(len(graph.layers), task), 60.0)
    trainer, asked = Trainer(commit, exchange), list[bool]()

    def progress(state: RoundCommit) -> None:
        if state.committed >= 2 and not asked:
            asked.append(True)
            while trainer.events.qsize() < 30:  # rounds that it knows nothing of
                time.sleep(0.01)
            trainer.pause()

    trainer.progress = progress
    for name in DEVICES:
        start(trainer, name, task, graph, Settings(30.0, 3), Faults())
    trainer.begin(len(DEVICES))
    try:
        trainer.run(120.0, until=lambda state: state.phase is Phase.PAUSED)
        assert commit.phase is Phase.PAUSED
        assert not any(report['error'] for report in commit.course.idle.values())
        [reached] = {report['round'] for report in commit.course.idle.values()}
        assert set(commit.course.idle) == set(DEVICES) and 2 < reached < task.rounds
        trainer.resume()
        trainer.run(120.0, until=lambda state: state.phase is not Phase.PAUSED)
        trainer.run(120.0)
        assert not commit.recoveries
        assert difference(trainer.collect(), train_alone(task)) < 1e-10
    finally:
        trainer.close()
