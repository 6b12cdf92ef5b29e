# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""`intradp train` on a small network in a file: plan, run, Ctrl-C and resume, show, errors."""
from __future__ import annotations

import errno
import json
import os
from pathlib import Path
import signal
import subprocess
import sys
import time

from dispositions import files_of_at_most
import pytest
from safetensors.torch import load_file
import torch
from training_fleet import difference

from intradp_lab.training.one_process import train_alone
from intradp_ros.cli import train_run
from intradp_ros.cli.main import main
from intradp_ros.core.atomic_write import sole_writer
from intradp_ros.systems.training.base.task import load_task
from intradp_ros.systems.training.layers.checkpoint import (
    Checkpoint,
    read_checkpoint,
    write_checkpoint,
)

#: Nobody seeds here: workers must make the same weights all the same.
TASK = """
import os
import time
import torch
from torch import nn
import torch.nn.functional as F
from intradp_ros.systems.training.base.items import Items, ItemsHere
from intradp_ros.systems.training.base.task import TrainingTask


class Pictures(torch.utils.data.Dataset):
    def __len__(self):
        return 60

    def __getitem__(self, k):
        generator = torch.Generator().manual_seed(k)
        return torch.randn(1, 8, 8, generator=generator, dtype=torch.float64), k % 10


def task(**changes):
    module = nn.Sequential(
        nn.Conv2d(1, 6, 3, padding=1, bias=False), nn.BatchNorm2d(6), nn.ReLU(),
        nn.Conv2d(6, 6, 3), nn.ReLU(), nn.Flatten(), nn.Linear(216, 10)).double()
    given = dict(
        module=module, loss=lambda o, t: F.cross_entropy(o, t, reduction='none'),
        optimiser=lambda named: torch.optim.Adam([p for _, p in named], lr=1e-3),
        data=Items(Pictures()), check=Items(Pictures()), batch=12, grain=2, micro_batches=2,
        rounds=ROUNDS)
    return TrainingTask(**{**given, **changes})


class Parted(nn.Module):
    def __init__(self):
        super().__init__()
        self.body, self.rare = nn.Linear(64, 10).double(), nn.Linear(64, 10).double()
        self.body.bias.requires_grad_(False)

    def forward(self, x):
        return self.body(x.flatten(1)), self.rare(x.flatten(1))


def parts(): return task(module=Parted(), loss=lambda o, t: F.cross_entropy(
    o[0], t, reduction='none'), check=None)
def mean(): return task(loss=F.cross_entropy)
def dataset(): return task(data=Pictures())
def learner(): return task(optimiser=lambda named: None)
def whole(): return task(rounds=12)


def parted():
    first, count = {'dock': (0, 20), 'rover': (20, 40)}.get(os.environ.get('INTRADP_DEVICE'),
                                                            (0, 0))
    items = [Pictures()[k] for k in range(first, first + max(1, count))]
    return task(data=ItemsHere(items, first, 60, count), rounds=12)


def two(): return 1, 2
def fails(): return 1 / 0
def tuples(): return task(module=nn.Sequential(nn.Flatten(2), nn.LSTM(64, 8)).double())
def far(): return task(data=Items(Far()))
def noise(): return task(data=Items(Noise()))


def torn(): return task(data=Items(Torn()), check=None, rounds=9)
def wild(): return task(schedule=lambda k: 1.0 if k < 4 else 1e200, check=None, rounds=9)


class Torn(Pictures):
    def __getitem__(self, k):
        if k == 37:
            raise OSError('picture 37 is torn')
        return super().__getitem__(k)


class Far(Pictures):
    def __getitem__(self, k):
        time.sleep(0.02)
        return super().__getitem__(k)


class Noise(Pictures):
    def __getitem__(self, k):
        return torch.randn(1, 8, 8, dtype=torch.float64), k % 10
"""

FLEET = """
devices:
  dock: {memory: 4 GB, power: {compute: 13, send: 4.2, idle: 4}}
  rover: {memory: 4 GB, speed: 0.8}
networks:
  wire: {access point: 1 Gbit/s, devices: [dock, rover], wired: [dock, rover], port: 100 Gbit/s}
"""


@pytest.fixture(scope='module')
def folder(tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp('train')
    (path / 'mytask.py').write_text(TASK.replace('ROUNDS', '4000'))
    (path / 'fleet.yaml').write_text(FLEET)
    os.environ['XDG_CACHE_HOME'] = str(path / 'cache')
    yield path
    del os.environ['XDG_CACHE_HOME']


def test_a_plan_says_who_does_what_and_what_binds(folder, capsys):
    assert main(['train', 'plan', f'{folder}/mytask.py:task', '--fleet', f'{folder}/fleet.yaml',
                 '--json', '-o', f'{folder}/plan.json', '--timeline', f'{folder}/round.png']) == 0
    found = json.loads(capsys.readouterr().out)
    assert found['round_ms'] >= found['limit_ms'] >= found['any_plan_ms'] > 0 and found['binds']
    assert {row['device'] for row in found['devices']} == {'dock', 'rover'}
    assert found['others_ms']['dock alone'] > found['round_ms']
    assert json.loads((folder / 'plan.json').read_text()) == found['plan']
    assert (folder / 'round.png').stat().st_size > 1000
    with files_of_at_most(9000):
        assert main(['train', 'plan', f'{folder}/mytask.py:task', '-o', f'{folder}/p.json',
                     '--timeline', f'{folder}/p.png']) == 2
    assert 'p.png: File too large' in capsys.readouterr().err and not any(folder.glob('p.*'))
    joules = {row['device']: row['joules'] for row in found['devices']}
    assert joules['dock'] > 0 and joules['rover'] is None


def test_a_plan_says_what_is_frozen_and_what_no_sample_reached(folder, capsys):
    assert main(['train', 'plan', f'{folder}/mytask.py:parts']) == 0
    said = ' '.join(capsys.readouterr().out.split())
    assert 'frozen (requires_grad=False): body.bias' in said
    assert 'reached by the loss for none of ' in said and ': rare.weight, rare.bias; ' in said


def test_a_plan_counts_the_time_in_which_samples_are_read(folder, capsys):
    found = []
    for name in ('far', 'task'):
        assert main(['train', 'plan', f'{folder}/mytask.py:{name}', '--json']) == 0
        found.append(json.loads(capsys.readouterr().out))
    far, near = found
    assert far['reading_ms'] >= 20 > near['reading_ms']
    more = far['devices'][0]['computing_ms'] - near['devices'][0]['computing_ms']
    assert more > 12 * 15, 'a round has 12 samples'


def test_data_that_lie_on_several_devices_are_read_where_they_lie(folder, capsys, monkeypatch):
    """And what was trained is said, though the disk is too full for its picture by then."""
    def draw(*words, **options):
        raise OSError(errno.ENOSPC, 'No space left on device', f'{folder}/p.png')
    monkeypatch.setattr(train_run, 'draw_training', draw)
    task = f'{folder}/mytask.py:parted'
    words = ['--fleet', f'{folder}/fleet.yaml', '--images', 'dock=20', '--images', 'rover=40']
    assert main(['train', 'plan', task, *words, '--json']) == 0
    found = json.loads(capsys.readouterr().out)
    assert found['data'] == {'dock': 20, 'rover': 40} and found['input_bytes'] > 0
    assert main(['train', 'run', task, *words, '--real', '--json', '--picture', f'{folder}/p.png',
                 '-o', f'{folder}/parted.safetensors']) == 2
    shown = capsys.readouterr()
    assert json.loads(shown.out)['done'] and 'p.png: No space left' in shown.err
    alone = train_alone(load_task(f'{folder}/mytask.py:whole'))
    assert difference(load_file(folder / 'parted.safetensors'), alone) < 1e-10
    assert main(['train', 'plan', task, *words[:2], '--images', 'dock=20', '--images',
                 'rover=41']) == 2
    assert 'the data are 60 samples, but 61 lie on devices' in capsys.readouterr().err


def test_what_is_there_is_not_written_over(folder, capsys, monkeypatch):
    """The best weights of another training, and a file that never held rounds."""
    words = ['train', 'run', f'{folder}/mytask.py:task', '--fleet', f'{folder}/fleet.yaml', '-o',
             f'{folder}/kept.safetensors']
    best, notes = folder / 'kept.best.safetensors', folder / 'notes.txt'
    for path in (best, notes):
        path.write_text('three years of work')
    assert main(words) == 2
    assert 'kept.best.safetensors is there already' in capsys.readouterr().err
    best.unlink()
    assert main([*words, '--overwrite', '--metrics', str(notes)]) == 2
    assert 'holds no rounds of a training' in ' '.join(capsys.readouterr().err.split())
    assert notes.read_text() == 'three years of work'
    notes.unlink()
    monkeypatch.chdir(folder)
    (folder / 'out').touch()
    assert main(words[:3]) == 2, 'where it is written by default is looked at, too'
    assert "out': is a file, not a folder; -o names another file" in capsys.readouterr().err


@pytest.mark.slow
def test_a_given_plan_is_run_or_refused(folder, capsys):
    task = f'{folder}/mytask.py:parted'
    words = ['--fleet', f'{folder}/fleet.yaml', '--images', 'dock=20', '--images', 'rover=40']
    assert main(['train', 'plan', task, *words, '--json']) == 0
    found = json.loads(capsys.readouterr().out)
    alone = train_alone(load_task(f'{folder}/mytask.py:whole'))
    (folder / 'given.json').write_text(json.dumps({**found['plan'], 'stages': [
        {'first': 0, 'last': 2, 'shares': [['rover', 3]]},
        {'first': 2, 'last': found['layers'], 'shares': [['dock', 3]]}], 'of_round': False}))
    run = ['train', 'run', task, *words, '--real', '--json', '-o', f'{folder}/given.safetensors',
           '--plan', f'{folder}/given.json', '--threads', '2', '--timeout', '60']
    assert main(run) == 0
    used = json.loads(capsys.readouterr().out)['plans'][0]
    assert used['plan'].startswith('0-1: rover(3) | 2-')
    assert difference(load_file(folder / 'given.safetensors'), alone) < 1e-10
    (folder / 'given.json').write_text(json.dumps({**found['plan'], 'grains': 9}))
    assert main([*run, '--overwrite']) == 2
    assert 'do not make the 9 grains of a round' in ' '.join(capsys.readouterr().err.split())


def test_ctrl_c_saves_and_resume_ends_as_one_process_does(folder, capsys, tmp_path):
    """The round at which it is interrupted does not show in the result."""
    words = ['train', 'run', f'{folder}/mytask.py:task', '--fleet', f'{folder}/fleet.yaml',
             '--real', '-o', f'{tmp_path}/found.safetensors', '--metrics', f'{tmp_path}/run.jsonl']
    with subprocess.Popen([sys.executable, '-m', 'intradp_ros.cli.main', *words], text=True,
                          stderr=subprocess.PIPE, start_new_session=True) as running:
        assert running.stderr is not None
        seen = []
        for line in running.stderr:
            seen.append(line)
            if 'training: round' in line:
                break
        time.sleep(0.5)
        os.killpg(running.pid, signal.SIGINT)  # as a terminal does
        seen += running.stderr.readlines()
        assert running.wait(300) == 130, ''.join(seen)
    assert main(['train', 'show', f'{tmp_path}/found.safetensors', '--json']) == 0
    shown = json.loads(capsys.readouterr().out)
    assert 0 < shown['round'] < 4000 and shown['parameters'] == 2566
    assert main(words) == 2
    assert '--resume goes on from it' in capsys.readouterr().err
    rounds = shown['round'] + 20
    (folder / 'mytask.py').write_text(TASK.replace('ROUNDS', str(rounds)))
    assert main([*words, '--resume', '--json', '--picture', f'{tmp_path}/run.png']) == 0
    found = json.loads(capsys.readouterr().out)
    alone = train_alone(load_task(f'{folder}/mytask.py:task'))
    assert 'dock(' in found['plans'][0]['plan'] and 'rover(' in found['plans'][0]['plan']
    assert found['resumed_from'] == shown['round'] and found['round'] == rounds
    assert found['loss'] == pytest.approx(alone.loss[-20:], rel=1e-9)
    assert found['gradient_norm'] == pytest.approx(alone.norm[-20:], rel=1e-9)
    state = load_file(f'{tmp_path}/found.safetensors')
    assert difference(state, alone) < 1e-10
    assert found['check']['samples'] == 60 and 0 <= found['check']['accuracy'] <= 1
    assert (tmp_path / 'run.png').exists()
    noted = [json.loads(line) for line in (tmp_path / 'run.jsonl').read_text().splitlines()]
    assert [line['round'] for line in noted] == list(range(1, rounds + 1)), 'each once'
    assert [line['loss'] for line in noted] == pytest.approx(alone.loss, rel=1e-9)
    assert [line['gradient_norm'] for line in noted] == pytest.approx(alone.norm, rel=1e-9)
    assert {line['rate'] for line in noted} == {1e-3} and noted[9]['epoch'] == 120 / 60
    assert noted[-1]['samples'] == 12 and set(noted[-1]['devices']) == {'dock', 'rover'}
    assert main([*words, '--resume']) == 2
    assert 'give the task more rounds' in capsys.readouterr().err
    for name in ('weights.pt', 'weights.safetensors'):
        assert main(['train', 'export', f'{tmp_path}/found.safetensors', '-o',
                     f'{folder}/{name}']) == 0
        module = load_task(f'{folder}/mytask.py:task').module
        module.load_state_dict(load_file(folder / name) if name.endswith('safetensors') else
                               torch.load(folder / name))
        for key, value in module.named_parameters():
            assert torch.equal(value, state[f'p:{key}'])
        assert torch.equal(module[1].running_var, state['b:1.running_var'])
    capsys.readouterr()
    assert main(['train', 'export', f'{tmp_path}/found.safetensors', '-o',
                 f'{tmp_path}/w.onnx']) == 2
    assert 'end its name in .pt' in ' '.join(capsys.readouterr().err.split())


def test_export_takes_the_place_of_no_checkpoint(
        tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Neither its own nor the best one, say: only weights would be left of it."""
    for name in ('night', 'night.best'):
        write_checkpoint(tmp_path / f'{name}.safetensors', Checkpoint(
            {'p:w': torch.ones(2)}, 'x.py:task', 2, 0, 12, 0.5))
        assert main(['train', 'export', f'{tmp_path}/night.safetensors', '-o',
                     f'{tmp_path}/{name}.safetensors']) == 2
        assert 'is a checkpoint, from which' in ' '.join(capsys.readouterr().err.split())
        assert read_checkpoint(tmp_path / f'{name}.safetensors').round == 2


@pytest.mark.parametrize('task, reason', [
    ('mytask.py:mean', "reduction='none'"),
    ('mytask.py:dataset', 'wrap a torch Dataset as items.Items'),
    ('mytask.py:learner', 'not a torch.optim.Optimizer'),
    ('mytask.py:two', 'not a TrainingTask'),
    ('mytask.py:fails', 'division by zero (mytask.py, line'),
    ('mytask.py:tuples', 'results need one row a sample'),
    ('mytask.py:noise', 'returns other values each time'),
    ('mytask.py:nothing', 'has no function nothing; it has'),
    ('nowhere.py:task', 'cannot be imported'),
    ('mytask', 'write file.py:function')])
def test_what_cannot_be_trained_is_said_with_the_reason(folder, capsys, task, reason):
    assert main(['train', 'plan', f'{folder}/{task}']) == 2
    assert reason in capsys.readouterr().err


@pytest.mark.parametrize('words, reason', [
    (['run', '--resume', '-o', '/tmp/none.safetensors'], 'there is no checkpoint'),
    (['plan', '--images', 'dock'], 'write DEVICE=SHARE'),
    (['plan', '--images', 'zz=1'], 'where data lie: there is no device zz; there are here'),
    (['plan', '--fleet', '/nowhere.yaml'], 'nowhere')])
def test_options_that_make_no_sense_are_refused(folder, capsys, words, reason):
    assert main(['train', words[0], f'{folder}/mytask.py:task', *words[1:]]) == 2
    assert reason in capsys.readouterr().err


def test_data_on_a_device_that_is_not_there_are_refused_before_anything_is_loaded(
        tmp_path, capsys):
    assert main(['train', 'run', f'{tmp_path}/nowhere.py:task', '--images', 'zz=1', '-o',
                 f'{tmp_path}/found.safetensors']) == 2
    assert 'there is no device zz; there are here' in capsys.readouterr().err


@pytest.mark.parametrize('words', [['train', 'run', 'nowhere.py:task'], ['demo-training']])
def test_a_torch_that_cannot_reach_other_processes_is_named_at_once(
        monkeypatch, tmp_path, capsys, words):
    """As some wheels for Jetson are."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr('torch.distributed.is_available', lambda: False)
    assert main(words) == 2
    assert 'was built without torch.distributed' in capsys.readouterr().err


def test_what_is_no_checkpoint_is_refused(folder, capsys):
    (folder / 'odd.safetensors').write_bytes(b'nothing')
    assert main(['train', 'show', f'{folder}/odd.safetensors']) == 2
    assert 'not a safetensors file' in capsys.readouterr().err


def test_why_training_came_to_nothing_is_said_to_people_and_to_programs(folder, capsys):
    assert main(['train', 'run', f'{folder}/mytask.py:torn', '--json', '-o',
                 f'{folder}/torn.safetensors']) == 1
    shown = capsys.readouterr()
    assert 'picture 37 is torn' in json.loads(shown.out)['error']
    assert 'training came to nothing' in shown.err and 'picture 37 is torn' in shown.err
    assert shown.err.count('starting: round 0') == 1


def test_a_training_that_diverges_is_an_error_and_leaves_finite_weights(folder, capsys):
    path = folder / 'wild.safetensors'
    assert main(['train', 'run', f'{folder}/mytask.py:wild', '--json', '-o', str(path)]) == 1
    shown = json.loads(capsys.readouterr().out)
    assert 'training has diverged: in round 5 ' in shown['error'] and not shown['done']
    found = read_checkpoint(path)
    assert shown['round'] == found.round and found.round in (4, 5)
    assert all(bool(t.isfinite().all()) for t in found.state.values())


def test_two_processes_do_not_write_one_checkpoint(folder, capsys):
    with sole_writer(folder / 'two.safetensors'):
        with subprocess.Popen(
                [sys.executable, '-m', 'intradp_ros.cli.main', 'train', 'run',
                 f'{folder}/mytask.py:task', '-o', f'{folder}/two.safetensors'],
                stderr=subprocess.PIPE, text=True) as other:
            assert 'another process is writing it' in other.communicate()[1]
        assert other.returncode
    assert not list(folder.glob('.two*'))


@pytest.mark.parametrize('words, error', [
    (('--seconds', '0.5', '--nodes', '/a', '/b'),
     'no node serves /a/train or /b/train: start it, or name it'),
    (('--deadline', '-1'), '--deadline: must be 0 to 1e+06, not -1')])
def test_a_goal_that_no_node_takes_is_an_error(capsys: pytest.CaptureFixture[str],
                                               words: tuple[str, ...], error: str) -> None:
    assert main(['train', 'send', *words]) == 2
    assert error in ' '.join(capsys.readouterr().err.split())
