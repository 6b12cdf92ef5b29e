# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""A training's end: full disks, devices that leave, divergence, samples that cannot be read."""
from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
import errno
from functools import partial
import hashlib
import json
from pathlib import Path
import re
import threading
import time
from typing import Any

from dispositions import files_of_at_most
from fleets import cell
import pytest
from safetensors.torch import load_file
import torch
from training_fleet import difference, fixed, Slow, small_sgd, Threads
from training_models import train_alone_drawing
from waiting import wait_for

from intradp_ros.runtime.transport.sealed_stream import connect
from intradp_ros.systems.training.base.task import samples_of, TaskError, TensorData, TrainingTask
from intradp_ros.systems.training.layers.checkpoint import (
    previous_of,
    read_checkpoint,
)
from intradp_ros.systems.training.plan.prepared import prepare, Prepared
from intradp_ros.systems.training.run.snapshots import pack
from intradp_ros.systems.training.run.weight_exchange import Exchange
from intradp_ros.systems.training.service import round_log, training_job
from intradp_ros.systems.training.service import trainer as trainer_module
from intradp_ros.systems.training.service.round_log import has_events, MetricsFile, TensorBoard
from intradp_ros.systems.training.service.trainer import trainer_of, TrainingError
from intradp_ros.systems.training.service.training_job import JobOptions, Progress, TrainingJob

TASK = f'{Path(__file__).parents[2]}/training_fleet.py:small_sgd'


@pytest.fixture(scope='module')
def prepared() -> Prepared:
    made = prepare(TASK, cell(8000.0, 'ab'))
    made.played(made.runnable(made.best()))  # compiles what plays
    return made


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
    job = JobOptions(path, metrics=tmp_path / 'night.jsonl')
    found = TrainingJob(prepared, job, make=make).run()
    assert found.done and found.round == 20
    assert found.plans[-1][1].participants == ('a',)
    alone = train_alone_drawing(small_sgd())
    assert difference(load_file(path), alone) < 1e-10
    lines = [json.loads(line) for line in (tmp_path / 'night.jsonl').read_text().splitlines()]
    assert [line['round'] for line in lines] == list(range(1, 21)), 'none is there twice'
    assert [line['loss'] for line in lines] == pytest.approx(alone.loss, rel=1e-9)
    assert lines[0]['rate'] == pytest.approx(0.05 * 0.02) and lines[0]['recoveries'] == 0
    assert lines[0]['devices'] == ['a', 'b']


def test_metrics_go_on_where_a_resumed_training_does(tmp_path: Path) -> None:
    """What a lost run noted behind its checkpoint is dropped, so is a line that was cut off."""
    path = tmp_path / 'folder' / 'run.jsonl'
    first = MetricsFile(path, resumed=False)
    for number in range(1, 6):
        first.put({'round': number, 'run': 1})
    path.write_text(path.read_text()[:-8])
    again = MetricsFile(path, resumed=True)
    for number in (4, 5):
        again.put({'round': number, 'run': 2})
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    assert [(line['round'], line['run']) for line in lines] == [
        (1, 1), (2, 1), (3, 1), (4, 2), (5, 2)]
    path.rename(tmp_path / 'kept')
    again.put({'round': 6, 'run': 2})
    assert f'{path} cannot be written: ' in again.trouble
    (tmp_path / 'kept').rename(path)
    again.put({'round': 7, 'run': 2})
    assert not again.trouble
    assert [json.loads(line)['round'] for line in path.read_text().splitlines()] == [
        1, 2, 3, 4, 5, 6, 7]


def test_rounds_that_cannot_be_noted_wait_in_one_file_and_are_named_at_the_end(
        tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """Full disks: of TensorBoard's there was a new file a round, with a traceback."""
    events = pytest.importorskip('tensorboard.backend.event_processing.event_accumulator')
    metrics, board = MetricsFile(tmp_path / 'run.jsonl', False), TensorBoard(tmp_path / 'board')

    def put(*numbers: int) -> None:
        for number in numbers:
            for sink in (metrics, board):
                sink.put({'round': number, 'loss': number / 4})
    put(1)
    with files_of_at_most(100):
        put(*range(2, 9))
        for sink, named in ((metrics, 'run.jsonl'), (board, 'board')):
            sink.finish()
            assert f'{named} cannot be written: ' in sink.trouble
            assert re.search('rounds [24] to 8 are not in it', sink.trouble)
        assert metrics.path.read_text().endswith('}\n'), 'a line is whole'
        with files_of_at_most(10):
            for sink in MetricsFile(tmp_path / 'none.jsonl', False), TensorBoard(tmp_path / 'no'):
                sink.put({'round': 1, 'loss': 0.5})
                sink.finish()
        assert not (tmp_path / 'none.jsonl').exists() and not has_events(tmp_path / 'no')
    [file] = (tmp_path / 'board').iterdir()
    put(9)
    assert not metrics.trouble and not board.trouble and capfd.readouterr().err == ''
    read = events.EventAccumulator(str(file))
    read.Reload()
    assert [(one.step, one.value) for one in read.Scalars('loss')] == [
        (number, number / 4) for number in range(1, 10)]
    metrics.path.unlink()
    put(10)
    metrics.finish()
    assert not metrics.trouble and json.loads(metrics.path.read_text())['round'] == 10


def test_tensorboard_has_the_numbers_of_rounds_each_once(
        tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Over a resume, a folder that cannot be written for a while, and a training begun anew."""
    events = pytest.importorskip('tensorboard.backend.event_processing.event_accumulator')
    folder = tmp_path / 'board'
    folder.touch()
    board = TensorBoard(folder)
    line = {'plan': 'a', 'devices': ['a'], 'rate': None, 'check_accuracy': 0.5}
    board.put({'round': 1, 'loss': 0.25, **line})
    assert f'{folder} cannot be written: ' in board.trouble and not has_events(folder)
    folder.unlink()
    for number in (2, 3, 4):
        board.put({'round': number, 'loss': number / 4, **line})
    assert not board.trouble and has_events(folder)

    def found() -> list[tuple[int, float]]:
        read = events.EventAccumulator(str(folder))
        read.Reload()
        assert sorted(read.Tags()['scalars']) == ['check/accuracy', 'loss']
        return [(one.step, one.value) for one in read.Scalars('loss')]
    assert found() == [(1, 0.25), (2, 0.5), (3, 0.75), (4, 1.0)]
    again = TensorBoard(folder)
    for number in (3, 4):
        again.put({'round': number, 'loss': 9.0, **line})
    assert found() == [(1, 0.25), (2, 0.5), (3, 9.0), (4, 9.0)]
    TensorBoard(folder).put({'round': 1, 'loss': 5.0, **line})
    assert found() == [(1, 5.0)]
    monkeypatch.setattr(round_log, 'find_spec', lambda name: None)
    with pytest.raises(TaskError, match="package tensorboard is needed: pip install 'tensorb"):
        TensorBoard(folder)


@pytest.mark.parametrize('resumed', [False, True])
def test_a_file_without_rounds_is_left_as_it_is(tmp_path: Path, resumed: bool) -> None:
    for text in ('three years of work\n', '{"epoch": 1}\n', '[1]\n', '"' * 99):
        path = tmp_path / 'notes'
        path.write_text(text)
        metrics = MetricsFile(path, resumed)
        metrics.put({'round': 1})
        assert 'holds no rounds' in metrics.trouble and path.read_text() == text


class Clock:
    """Time that passes when somebody lets it."""

    def __init__(self) -> None:
        self.now = 0.0

    def monotonic(self) -> float:
        return self.now


def test_a_state_may_take_long_as_long_as_more_of_it_comes(
        prepared: Prepared, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock()
    monkeypatch.setattr(trainer_module, 'time', clock)
    graph, task, exchange = prepared.graph, prepared.task, Exchange('127.0.0.1')
    trainer = trainer_of(task, graph, fixed(len(graph.layers), task), 5.0, exchange,
                         lambda commit: None, None)
    trainer.beats = False
    body = pack({0: {name: p.detach() for name, p in task.module.named_parameters()}})
    halts = threading.Event()

    class Halting:
        def send(self, order: Mapping[str, Any]) -> None:
            if order['order'] == 'collect':
                threading.Thread(target=self._give, args=(order['key'],), daemon=True).start()

        def _give(self, key: str) -> None:
            stream = connect(exchange.place, b'', f'bring {key}')
            stream.send(len(body).to_bytes(8, 'little'))
            for end in range(piece := len(body) // 6, len(body) + piece, piece):
                clock.now += 0.3
                if halts.is_set():
                    clock.now += 0.5
                    return
                stream.send(body[end - piece:end])
                wait_for(partial(self._came, key, min(end, len(body))))
            trainer.events.put(('a', {'report': 'collected', 'key': key,
                                      'digest': hashlib.sha256(body).hexdigest()}))

        def _came(self, key: str, count: int) -> bool:
            return exchange.arrived(key) >= count

        def kill(self) -> None:
            raise NotImplementedError
    trainer.add('a', Halting())
    trainer.begin(1)
    trainer.commit.held['a'] = {0: list(range(len(graph.layers)))}
    assert len(trainer.collect(0.75, 0)) == len(list(task.module.parameters()))
    halts.set()
    trainer.commit.resume(0.0)
    trainer.commit.course.number = trainer.commit.number._replace(epoch=9)
    with pytest.raises(TrainingError, match='a did not give its weights'):
        trainer.collect(0.75, 0)


def wild(number: int) -> float:
    """Return a rate with which weights are not numbers after round 13."""
    return 0.02 if number < 12 else 1e200


class Unsaved(Slow):
    """Data that take long until a file is there: it is saved before the last round."""

    def take(self, samples: Sequence[int]) -> Any:
        time.sleep(0.0 if self._slow.exists() else 0.05)
        return self.data.take(samples)


def after(task: TrainingTask, rounds: int) -> Any:
    return train_alone_drawing(replace(task, rounds=rounds))


@pytest.mark.parametrize('save_every', [0, 4])
def test_a_training_that_diverges_ends_with_its_last_finite_state(
        tmp_path: Path, prepared: Prepared, save_every: int) -> None:
    """Weights of round 13 are huge, its loss is none; nothing finite is ever written over."""
    task = replace(prepared.task, schedule=wild)
    path = tmp_path / 'night.safetensors'
    slow = replace(task, data=Unsaved(task.data, str(path))) if save_every else task
    with pytest.raises(TrainingError) as raised:
        TrainingJob(replace(prepared, task=slow), JobOptions(path, save_every),
                    make=Threads).run()
    said, found = str(raised.value), read_checkpoint(path)
    assert 'diverged: in round 13 the loss is nan' in said or 'in round 13 the loss is inf' in said
    assert f'{path} has round {found.round}: resume from it' in said
    assert found.round in (12, 13), 'what was reached, unless it is not numbers itself'
    assert all(bool(torch.isfinite(t).all()) for t in found.state.values())
    assert difference(found.state, after(task, found.round)) < 1e-10
    if save_every:
        assert 4 <= read_checkpoint(previous_of(path)).round < found.round
    else:
        assert not previous_of(path).exists()


def test_of_two_checkpoints_the_older_one_is_taken_where_the_newer_is_no_use(
        tmp_path: Path, prepared: Prepared) -> None:
    path = tmp_path / 'night.safetensors'
    for older, rounds in ((0, 5), (5, 8)):
        short = replace(prepared, task=replace(prepared.task, rounds=rounds))
        assert TrainingJob(short, JobOptions(path, resume=bool(older)), make=Threads).run().done
    assert read_checkpoint(path).round == 8 and read_checkpoint(previous_of(path)).round == older
    (inputs,), targets = prepared.task.data.take(range(len(prepared.task.data)))
    for others in (TensorData((inputs,), targets.flip(0)), TensorData((inputs + 1,), targets)):
        changed = replace(prepared, task=replace(prepared.task, data=others))
        with pytest.raises(TaskError, match='with other samples than the task has now: let it'):
            TrainingJob(changed, JobOptions(path, resume=True))
    path.write_bytes(path.read_bytes()[:-100])
    job = TrainingJob(prepared, JobOptions(path, resume=True), make=Threads)
    assert f'goes on from round {older} of {previous_of(path)}, since {path} ' in job.note
    found = job.run()
    assert found.done and found.resumed_from == older
    assert difference(load_file(path), train_alone_drawing(prepared.task)) < 1e-10
    assert read_checkpoint(previous_of(path)).round == older, 'no damaged one is kept'
    previous_of(path).write_bytes(b'')
    path.write_bytes(b'')
    with pytest.raises(TaskError, match='not a safetensors file'):
        TrainingJob(prepared, JobOptions(path, resume=True))


class Torn:
    """Data of which a sample fails, so many times."""

    def __init__(self, data: Any, times: float, sample: int = 37) -> None:
        self.data, self.times, self.sample = data, times, sample

    def __len__(self) -> int:
        return len(self.data)

    def take(self, samples: Sequence[int]) -> Any:
        if self.sample in samples and self.times > 0:
            self.times -= 1
            raise OSError(errno.EIO, 'Input/output error')
        return self.data.take(samples)


def test_a_sample_that_fails_once_is_read_again(tmp_path: Path, prepared: Prepared) -> None:
    task = prepared.task
    torn = replace(prepared, task=replace(task, data=Torn(task.data, 2)))
    path = tmp_path / 'night.safetensors'
    found = TrainingJob(torn, JobOptions(path), make=Threads).run()
    assert found.done and not found.recoveries
    assert difference(load_file(path), train_alone_drawing(task)) < 1e-10


def test_a_sample_that_nobody_can_read_ends_the_training_with_all_that_was_reached(
        tmp_path: Path, prepared: Prepared) -> None:
    task = replace(prepared.task, batch=12)  # some rounds are without it
    torn = replace(prepared, task=replace(task, data=Torn(task.data, 1e9)))
    path = tmp_path / 'night.safetensors'
    with pytest.raises(TrainingError) as raised:
        TrainingJob(torn, JobOptions(path), make=Threads).run()
    found = read_checkpoint(path)
    assert 'a: sample 37 of 90 cannot be read' in str(raised.value)
    assert 'b: sample 37 of 90 cannot be read' in str(raised.value)
    assert f'{path} has round {found.round}: resume from it' in str(raised.value)
    first = next(number for number in range(20)
                 if 37 in samples_of(task.seed, 90, task.batch, number))
    assert found.round == first > 0, 'not a round is lost'
    assert difference(found.state, after(task, first)) < 1e-10


def test_others_go_on_without_a_device_that_cannot_read_a_sample(
        tmp_path: Path, prepared: Prepared) -> None:
    task, path = prepared.task, tmp_path / 'night.safetensors'

    def make(*given: Any) -> Threads:
        return Threads(*given, tasks={'a': replace(task, data=Torn(task.data, 1e9))})
    found = TrainingJob(prepared, JobOptions(path), make=make).run()
    [recovery] = found.recoveries
    assert found.done and recovery.lost == ('a',)
    assert recovery.tag == recovery.reached > 0, 'what a still has is taken from it'
    assert difference(load_file(path), train_alone_drawing(task)) < 1e-10
