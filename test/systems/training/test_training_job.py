# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""A training's end: disks that are full, devices that leave while the result is collected."""
from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
import hashlib
from pathlib import Path
import threading
import time
from typing import Any

from fleets import cell
import pytest
from safetensors.torch import load_file
from training_fleet import difference, Faults, fixed, Slow, small_sgd, start
from training_models import train_alone_drawing

from intradp_ros.runtime.transport.sealed_stream import connect
from intradp_ros.systems.training.layers.checkpoint import Checkpoint
from intradp_ros.systems.training.plan.prepared import prepare, Prepared
from intradp_ros.systems.training.plan.training_plan import Planner
from intradp_ros.systems.training.run.exchange import Exchange
from intradp_ros.systems.training.run.snapshots import pack
from intradp_ros.systems.training.run.worker_settings import Settings
from intradp_ros.systems.training.service import training_job
from intradp_ros.systems.training.service.round_commit import RoundCommit
from intradp_ros.systems.training.service.trainer import Trainer, trainer_of, TrainingError
from intradp_ros.systems.training.service.training_job import JobOptions, Progress, TrainingJob

TASK = f'{Path(__file__).parents[2]}/training_fleet.py:small_sgd'


@pytest.fixture(scope='module')
def prepared() -> Prepared:
    made = prepare(TASK, cell(8000.0, 'ab'))
    made.played(made.best().stages)  # compiles what plays
    return made


class Leaving:
    """The way to a device that leaves when it is asked for its weights for the first time."""

    def __init__(self, link: Any, trainer: Trainer) -> None:
        self.link, self.trainer, self.left = link, trainer, False

    def send(self, order: Mapping[str, Any]) -> None:
        if order['order'] == 'collect' and not self.left:
            self.left = True
            self.link.send({'order': 'end'})
        else:
            self.link.send(order)

    def kill(self) -> None:
        self.link.kill()


class Threads:
    """Two devices as threads, a stage each; those of `leaving` leave at the end."""

    def __init__(self, prepared: Prepared, planner: Planner, options: JobOptions,
                 progress: Callable[[RoundCommit], None], base: Checkpoint | None,
                 leaving: str = '') -> None:
        graph = prepared.graph
        self._prepared, self._leaving = prepared, leaving
        self.trainer = trainer_of(prepared.task, graph, fixed(len(graph.layers), prepared.task),
                                  5.0, Exchange('127.0.0.1'), progress, base)
        self.trainer.beats = False

    def __enter__(self) -> Threads:
        for name in 'ab':
            start(self.trainer, name, self._prepared.task, self._prepared.graph,
                  Settings(5.0, 3), Faults())
        self.trainer.begin(2)
        for name in self._leaving:
            self.trainer.links[name] = Leaving(self.trainer.links[name], self.trainer)
        return self

    def __exit__(self, *error: object) -> None:
        self.trainer.close()


def test_a_disk_that_is_full_ends_no_training(tmp_path: Path, prepared: Prepared,
                                              monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing can be written where a file is in the place of the folder, until it goes."""
    monkeypatch.setattr(training_job, 'ATTEMPT', 0.05)
    full, slow, seen = tmp_path / 'folder', tmp_path / 'slow', list[Progress]()
    full.touch()
    slow.touch()  # until the trouble is seen
    task = replace(prepared.task, rounds=100, schedule=lambda number: 1e-4)  # rounding stays
    prepared = replace(prepared, task=replace(task, data=Slow(task.data, str(slow))))

    def heard(progress: Progress) -> None:
        seen.append(progress)
        if progress.trouble:
            slow.unlink(missing_ok=True)
        if progress.trouble and progress.state == 'saving' and progress.round == 100:
            full.unlink(missing_ok=True)
    path = full / 'night.safetensors'
    found = TrainingJob(prepared, JobOptions(path, 6), heard, Threads).run()
    troubled = [p.round for p in seen if f'{path} cannot be written: ' in p.trouble]
    assert 6 <= troubled[0] < 100 == troubled[-1], 'it says so, and goes on'
    assert found.done and found.round == 100 and not found.recoveries
    assert difference(load_file(path), train_alone_drawing(task)) < 1e-10


def test_a_result_for_which_there_is_never_room_is_refused_with_the_reason(
        tmp_path: Path, prepared: Prepared, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(training_job, 'ATTEMPT', 0.05)
    monkeypatch.setattr(training_job, 'UNSAVED', 0.3)
    (tmp_path / 'folder').touch()
    with pytest.raises(TrainingError, match='round 20 was reached, but .*cannot be written: '):
        TrainingJob(prepared, JobOptions(tmp_path / 'folder' / 'x'), make=Threads).run()


def test_a_device_that_leaves_while_the_result_is_collected_costs_nothing(
        tmp_path: Path, prepared: Prepared) -> None:
    """Those that stay play the last rounds again, from what they hold of the others."""
    def make(*given: Any) -> Threads:
        return Threads(*given, leaving='b')
    path = tmp_path / 'night.safetensors'
    found = TrainingJob(prepared, JobOptions(path), make=make).run()
    assert found.done and found.round == 20
    assert found.plans[-1][1].participants == ('a',)
    assert difference(load_file(path), train_alone_drawing(small_sgd())) < 1e-10


def test_a_state_may_take_long_as_long_as_more_of_it_comes(
        prepared: Prepared, monkeypatch: pytest.MonkeyPatch) -> None:
    graph, task, exchange = prepared.graph, prepared.task, Exchange('127.0.0.1')
    trainer = trainer_of(task, graph, fixed(len(graph.layers), task), 5.0, exchange,
                         lambda commit: None, None)
    trainer.beats = False
    body = pack({0: {name: p.detach() for name, p in task.module.named_parameters()}})
    halts = threading.Event()

    class Slow:
        def send(self, order: Mapping[str, Any]) -> None:
            if order['order'] == 'collect':
                threading.Thread(target=self._give, args=(order['key'],), daemon=True).start()

        def _give(self, key: str) -> None:
            stream = connect(exchange.place, b'', f'bring {key}')
            stream.send(len(body).to_bytes(8, 'little'))
            for begin in range(0, len(body), piece := len(body) // 6):
                time.sleep(0.25)
                if halts.is_set():
                    return
                stream.send(body[begin:begin + piece])
            trainer.events.put(('a', {'report': 'collected', 'key': key,
                                      'digest': hashlib.sha256(body).hexdigest()}))

        def kill(self) -> None:
            raise NotImplementedError
    trainer.add('a', Slow())
    trainer.begin(1)
    assert len(trainer.collect(wait=0.75)) == len(list(task.module.parameters()))
    halts.set()
    trainer.commit.resume(0.0)
    trainer.commit.number = trainer.commit.number._replace(epoch=9)
    with pytest.raises(TrainingError, match='a did not give its weights'):
        trainer.collect(wait=0.75)
