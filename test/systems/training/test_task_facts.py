# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""A device that has another version of a task, or other data, is refused with what differs."""
from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
import queue
from typing import Any

import pytest
import torch
from torch import nn
from training_fleet import adam, cross_entropy, make_task, sgd

from intradp_ros.systems.training.base.items import Items
from intradp_ros.systems.training.base.task import TensorData, TrainingTask
from intradp_ros.systems.training.layers.layer_capture import capture
from intradp_ros.systems.training.layers.layer_graph import LayerGraph
from intradp_ros.systems.training.layers.task_facts import (
    apart,
    DATA,
    MOST_TEXT,
    sample_facts,
    task_facts,
)
from intradp_ros.systems.training.run.worker_process import ProcessLink
from intradp_ros.systems.training.run.worker_settings import Settings

HALF = """
import os
import sys
sys.path.append({tests!r})
from training_fleet import make_task


class Gone:
    def __len__(self):
        return 64

    def take(self, samples):
        return open('/data/of/yesterday.npy')


def task():
    made = make_task(rounds=7)
    return made


def nothing():
    object.__setattr__(made := make_task(), 'data', Gone())
    return made
"""


def facts(task: TrainingTask, graph: LayerGraph | None = None) -> dict[str, str]:
    return task_facts(task, graph or capture(task))


def test_facts_of_many_tensors_are_no_longer_than_what_devices_believe() -> None:
    parts = tuple(-torch.rand(64, 3).double() * 1e-100 for _ in range(9))
    task = replace(make_task(), data=TensorData(parts, torch.zeros(64)))
    assert 800 < len(sample_facts(task)) <= MOST_TEXT


def doubled(outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    return 2 * cross_entropy(outputs, targets)


def faster(named: Any) -> torch.optim.Optimizer:
    return torch.optim.SGD([
        {'params': [p for _, p in named if p.dim() > 1], 'weight_decay': 1e-3},
        {'params': [p for _, p in named if p.dim() <= 1]}], lr=0.06, momentum=0.9)


def nudged(task: TrainingTask, by: float) -> TrainingTask:
    """Return a task whose pictures are a little others, in parts of what they are."""
    (inputs,), targets = task.data.take(range(len(task.data)))
    return replace(task, data=TensorData((inputs * (1 + by),), targets))


def test_what_makes_another_result_is_named() -> None:
    task = make_task('small')
    graph = capture(task)
    wanted = facts(task, graph)
    assert set(wanted) <= {'initial weights', 'network', 'figures', 'optimiser', 'schedule',
                           'loss', 'hooks', 'augmentation', 'number of samples', DATA}
    assert apart(facts(make_task('small')), wanted) == ''
    other = make_task('small')
    with torch.no_grad():
        next(other.module.parameters()).add_(1e-9)
    (inputs,), targets = task.data.take(range(len(task.data)))
    for name, changed in (
            ('initial weights', other), ('figures', replace(task, batch=20)),
            ('figures', replace(task, clip=1.0)), ('figures', replace(task, rounds=21)),
            ('figures', replace(task, freeze_norms=True)),
            ('optimiser', replace(task, optimiser=faster)),
            ('optimiser', replace(task, optimiser=adam)),
            ('schedule', replace(task, schedule=lambda number: 0.02 + (number > 15))),
            ('loss', replace(task, loss=doubled)),
            ('number of samples', replace(task, data=TensorData((inputs[:-1],), targets[:-1]))),
            (DATA, replace(task, data=TensorData((inputs.flip(0),), targets)))):
        assert apart(facts(changed, graph), wanted).startswith(f'{name} '), name
    assert apart(facts(nudged(task, 1e-3), graph), wanted) == '', 'decoders differ a little'
    assert apart(facts(nudged(task, 0.1), graph), wanted).startswith(DATA)


def test_labels_and_words_are_compared_to_the_last_bit() -> None:
    """Those of a set of names have other numbers in each process."""
    task = make_task('small')
    graph = capture(task)
    (inputs,), targets = task.data.take(range(len(task.data)))

    def of(labels: torch.Tensor) -> dict[str, str]:
        return facts(replace(task, data=TensorData((inputs,), labels)), graph)
    hot = torch.eye(10)
    for labels, others in ((targets + 200, targets + 201), (hot[targets], hot[9 - targets]),
                           (targets > 4, targets <= 4)):
        assert apart(of(labels), of(labels)) == ''
        assert apart(of(others), of(labels)).startswith(DATA)


def louder(item: Any, generator: torch.Generator) -> Any:
    return item[0] + 1e-6 * torch.randn(item[0].shape, generator=generator), item[1]


def quieter(item: Any, generator: torch.Generator) -> Any:
    return item[0] + 1e-9 * torch.randn(item[0].shape, generator=generator), item[1]


def test_another_augmentation_is_named_though_samples_are_almost_the_same() -> None:
    task = make_task('small')
    graph = capture(task)
    (inputs,), targets = task.data.take(range(len(task.data)))
    pairs = list(zip(inputs, targets))
    one, other = (replace(task, data=Items(pairs, augment=how)) for how in (louder, quieter))
    assert apart(facts(one, graph), facts(one, graph)) == ''
    assert apart(facts(one, graph), facts(other, graph)).startswith('augmentation ')
    assert apart(facts(task, graph), facts(one, graph)).startswith('augmentation ')


def test_layers_that_compute_something_else_are_another_network() -> None:
    def made(between: nn.Module) -> dict[str, str]:
        torch.manual_seed(0)
        module = nn.Sequential(nn.Flatten(), nn.Linear(64, 8), between, nn.Linear(8, 10)).double()
        return facts(replace(make_task('transformer', sgd), module=module))
    assert apart(made(nn.ReLU()), made(nn.ReLU())) == ''
    assert apart(made(nn.ReLU()), made(nn.GELU())).startswith('network ')


def fault_of(task: str, wanted: Mapping[str, str], prefix: tuple[str, ...] = ()) -> str:
    """Return why a worker process cannot train, which ends with it."""
    reports = queue.SimpleQueue[Any]()
    ProcessLink('b', task, ('127.0.0.1', 9), Settings(),
                lambda name, report: reports.put(report), prefix=prefix, facts=wanted)
    found = [report for report in iter(lambda: reports.get(timeout=90.0), None)
             if report['report'] == 'fault']
    return str(found[0]['error']) if found else ''


def test_a_worker_says_what_is_other_or_missing_there(tmp_path: Path) -> None:
    """The error names the fact, or the line of the task's code that failed."""
    (tmp_path / 'night.py').write_text(HALF.format(tests=str(Path(__file__).parents[2])))
    said = fault_of(f'{tmp_path}/night.py:task', facts(make_task(rounds=8)))
    assert 'is another task here: figures ... 7, seed 0' in said and 'planned 8, seed 0' in said
    said = fault_of(f'{tmp_path}/night.py:nothing', {})
    assert 'yesterday.npy' in said and '(night.py, line 13)' in said


@pytest.mark.parametrize(('command', 'cause'), [
    ('kill -9 $$', 'was killed (SIGKILL)'), ('exit 3', 'ended with code 3')])
def test_a_worker_that_cannot_say_why_it_ends_leaves_the_cause(command: str, cause: str) -> None:
    assert fault_of('night.py:task', {}, ('sh', '-c', command)) == \
        f'its process {cause} before it was ready'
