# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""Checkpoints: they hold the whole network, and nothing else is taken for one."""
from __future__ import annotations

from dataclasses import replace
import json
import os

import pytest
from safetensors.torch import load_file, save_file
import torch
from torch import nn
from training_fleet import cross_entropy, shuffled, train

from intradp_ros.runtime.models.weight_file import load_weights, read_weights
from intradp_ros.systems.training.base.task import TaskError, TensorData, TrainingTask
from intradp_ros.systems.training.layers.checkpoint import (
    check_fits,
    Checkpoint,
    previous_of,
    read_checkpoint,
    whole_state,
    write_checkpoint,
)
from intradp_ros.systems.training.layers.layer_capture import capture
from intradp_ros.systems.training.run.stage_runner import by_layer


class Partly(nn.Module):
    """Frozen, tied and unused parameters, a norm, and a buffer that nothing changes."""

    def __init__(self):
        super().__init__()
        self.first, self.again = nn.Linear(6, 6), nn.Linear(6, 6)
        self.again.weight = self.first.weight
        self.frozen, self.norm, self.never = nn.Linear(6, 6), nn.BatchNorm1d(6), nn.Linear(2, 2)
        self.frozen.requires_grad_(False)
        self.register_buffer('scale', torch.full((6,), 2.0))

    def forward(self, x):
        x = torch.tanh(self.again(torch.tanh(self.first(x))))
        return self.norm(self.frozen(x)) * self.scale


def adam(named):
    return torch.optim.Adam([p for _, p in named], lr=1e-2)


def make_task(rounds=4, optimiser=adam) -> TrainingTask:
    torch.manual_seed(1)
    return TrainingTask(
        Partly().double(), cross_entropy, optimiser,
        TensorData((torch.randn(30, 6).double(),), torch.randint(0, 6, (30,))), batch=12, grain=3,
        micro_batches=2, rounds=rounds)


@pytest.fixture(scope='module')
def trained(tmp_path_factory):
    """Return a file after two rounds."""
    task, path = make_task(2), tmp_path_factory.mktemp('checkpoint') / 'two.safetensors'
    graph = capture(task)
    _, state = train(task, 'ab', shuffled(1, len(graph.layers), task), graph=graph)
    write_checkpoint(path, Checkpoint(whole_state(task, state), 'x.py:task', 2, task.seed,
                                      task.batch, 0.5, 30))
    return path


def test_a_link_that_others_laid_beside_a_checkpoint_is_not_followed(tmp_path, trained):
    path, other = tmp_path / 'task.safetensors', tmp_path / 'other'
    other.write_text('of another')
    previous_of(path).symlink_to(other)
    for keep in (False, True):
        write_checkpoint(path, read_checkpoint(trained), keep)
    assert other.read_text() == 'of another'
    assert read_checkpoint(previous_of(path)).round == 2 and not previous_of(path).is_symlink()


def test_a_checkpoint_has_all_that_the_module_has(trained):
    """A robot takes it as it is, by this package or by plain PyTorch."""
    found = load_file(trained)
    module = Partly().double()
    plain = {name[2:]: t for name, t in found.items() if name[:2] in ('p:', 'b:')}
    missing = module.load_state_dict(plain, strict=False)
    assert not missing.missing_keys and not missing.unexpected_keys
    other = Partly().double()
    load_weights(other, read_weights(trained, 1e4))
    assert torch.equal(other.again.weight, found['p:first.weight'])
    assert not torch.equal(other.first.weight, make_task().module.get_parameter('first.weight'))


def test_it_goes_on_as_if_nothing_had_been(trained):
    task = make_task()
    graph, found = capture(task), read_checkpoint(trained)
    check_fits(found, task, graph)
    planner = shuffled(1, len(graph.layers), task)
    _, whole = train(task, 'ab', planner, graph=graph)
    _, state = train(task, 'ab', planner, graph=graph, base=(2, by_layer(graph, found.state)))
    assert all(torch.allclose(state[name], value, rtol=0, atol=1e-13)
               for name, value in whole.items())


def test_what_is_not_finite_is_not_written_over_what_is(trained, tmp_path):
    found, path = read_checkpoint(trained), tmp_path / 'kept.safetensors'
    write_checkpoint(path, found)
    before = path.read_bytes()
    lost = {**found.state, 'p:first.weight': found.state['p:first.weight'] * float('nan')}
    with pytest.raises(ValueError, match='first.weight'):
        write_checkpoint(path, replace(found, state=lost))
    assert path.read_bytes() == before and [*tmp_path.iterdir()] == [path]


def changed(path, tmp_path, **facts):
    """Return a file whose facts or tensors are others, and say nothing of its content."""
    state = load_file(path)
    told = {'task': 'x', 'round': 2, 'seed': 0, 'batch': 12, 'loss': 0.5, 'samples': 30}
    tensors = {key: value for key, value in facts.items() if ':' in key}
    told |= {key: value for key, value in facts.items() if ':' not in key}
    state = {key: value for key, value in (state | tensors).items() if value is not None}
    save_file(state, tmp_path / 'changed.safetensors',
              {'format': 'intradp-checkpoint-1', 'training': json.dumps(told)})
    return tmp_path / 'changed.safetensors'


@pytest.mark.parametrize('facts, reason', [
    ({'seed': 3}, '3 seed'), ({'samples': 31}, '31 samples in all'),
    ({'round': 9}, 'nothing to go on with'), ({'round': -1}, 'make no sense'),
    ({'batch': 1 << 60}, 'make no sense'), ({'round': 'two'}, 'cannot be read'),
    ({'batch': None}, 'cannot be read'),
    ({'p:first.weight': torch.zeros(6, 7).double()}, 'another network'),
    ({'p:first.weight': torch.zeros(6, 6)}, 'another network'),
    ({'b:norm.running_var': None}, 'of norm.running_var it has nothing'),
    ({'p:first.weight': torch.full((6, 6), float('nan')).double()}, 'not numbers'),
    ({'o:first.weight:exp_avg': None}, 'another optimiser: of first.weight:exp_avg'),
    ({'o:first.weight:exp_avg': torch.zeros(3).double()}, 'another optimiser'),
    ({'o:first.weight:momentum_buffer': torch.zeros(6, 6).double()}, 'knows nothing'),
    ({'p:frozen.weight': torch.zeros(6, 6).double()}, 'frozen.weight, which is not trained')])
def test_what_is_no_checkpoint_of_the_task_is_refused(trained, tmp_path, facts, reason):
    task = make_task()
    with pytest.raises(TaskError, match=reason):
        check_fits(read_checkpoint(changed(trained, tmp_path, **facts)), task, capture(task))


def test_a_damaged_file_is_never_read_as_another_one(trained, tmp_path):
    data, path = trained.read_bytes(), tmp_path / 'damaged.safetensors'
    first = read_checkpoint(trained)
    names = [data.index(name) for name in (b'"content"', b'"format"', b'"training"')]
    for place in (*range(0, len(data), len(data) // 60), *(at + 1 for at in names)):
        damaged = bytearray(data)
        damaged[place] ^= 0x10
        path.write_bytes(damaged)
        with pytest.raises(TaskError):
            read_checkpoint(path)
        path.write_bytes(data[:place])
        with pytest.raises(TaskError):
            read_checkpoint(path)
    path.write_bytes((1 << 62).to_bytes(8, 'little') + data[8:])
    with pytest.raises(TaskError, match='not a safetensors'):
        read_checkpoint(path)
    path.write_bytes(data)
    again = read_checkpoint(path)
    assert replace(again, state={}) == replace(first, state={})


def test_what_is_no_file_is_not_waited_for(tmp_path):
    os.mkfifo(tmp_path / 'pipe')
    (tmp_path / 'large').touch()
    os.truncate(tmp_path / 'large', 1 << 42)
    (tmp_path / 'link').symlink_to(tmp_path / 'nowhere')
    for name, reason in (('pipe', 'not a file'), ('.', 'not a file'), ('link', 'No such file'),
                         ('large', 'larger than the memory')):
        with pytest.raises(TaskError, match=reason):
            read_checkpoint(tmp_path / name)
