# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""Trainings with devices as threads of this process; a device is killed by an error in it."""
from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
import os
from pathlib import Path
import random
import threading
import time
from typing import Any

import torch
from torch import nn
import torch.nn.functional as F  # noqa: N812
from training_models import data_of, mobilenet, Small, Typed

from intradp_lab.training.one_process import OneProcess
from intradp_ros.systems.training.base.task import TrainingTask
from intradp_ros.systems.training.layers.checkpoint import Checkpoint
from intradp_ros.systems.training.layers.layer_capture import capture
from intradp_ros.systems.training.layers.layer_graph import LayerGraph
from intradp_ros.systems.training.layers.layer_table import LayerTable, LayerTimes
from intradp_ros.systems.training.plan.prepared import Prepared
from intradp_ros.systems.training.plan.stage_actions import Action
from intradp_ros.systems.training.plan.training_plan import Planner, TrainingPlan, TrainingStage
from intradp_ros.systems.training.run.weight_exchange import Exchange
from intradp_ros.systems.training.run.worker import Worker
from intradp_ros.systems.training.run.worker_settings import Settings
from intradp_ros.systems.training.service.round_commit import Phase, RoundCommit
from intradp_ros.systems.training.service.trainer import Trainer, trainer_of
from intradp_ros.systems.training.service.training_job import JobOptions

#: Devices are threads here: passes that take all processors each would wait for one another.
torch.set_num_threads(1)


def layer_table(graph: LayerGraph, devices: Sequence[str], pass_seconds: float = 1e-3,
                kept: float = 1e3) -> LayerTable:
    """Return a table in which a layer takes so long a pass, and 1 ms a sample."""
    count = len(graph.layers)
    rows = tuple((pass_seconds + 1e-3 * batch,) * count for batch in (1, 64))
    border = (512.0,) * (count + 1)
    return LayerTable(tuple(layer.name for layer in graph.layers), (kept,) * count,
                      (1e3,) * count, (1e3,) * count, border, border,
                      dict.fromkeys(devices, LayerTimes((1, 64), rows, rows)))


class Killed(BaseException):
    """Ends a worker's thread, whatever it does."""


@dataclass
class ThreadLink:
    """A worker in a thread."""

    worker: Worker
    thread: threading.Thread

    def send(self, order: Mapping[str, Any]) -> None:
        self.worker.take(order)

    def kill(self) -> None:
        raise NotImplementedError


class Slow:
    """Data that take long while a file is there, so that no round is missed."""

    def __init__(self, data: Any, slow: str) -> None:
        self.data, self._slow = data, Path(slow)

    def __len__(self) -> int:
        return len(self.data)

    def take(self, samples: Sequence[int]) -> Any:
        time.sleep(0.1 if self._slow.exists() else 0.0)
        return self.data.take(samples)


@dataclass
class Faults:
    """Devices that die before an action of a round, each once."""

    at: dict[str, tuple[int, str]] = field(default_factory=dict)

    def __call__(self, device: str) -> Callable[[int, Action], None]:
        def before(number: int, action: Action) -> None:
            if self.at.get(device) == (number, str(action)):
                del self.at[device]
                raise Killed
        return before


def start(trainer: Trainer, name: str, task: TrainingTask, graph: LayerGraph, settings: Settings,
          faults: Faults, key: bytes = b'') -> None:
    worker = Worker(name, task, graph, trainer.exchange.place,
                    lambda report: trainer.events.put((name, report)), settings, faults(name), key)

    def run() -> None:
        try:
            worker.run()
        except Killed:
            pass
        except BaseException as error:  # what a process would end with
            trainer.commit.why = f'{type(error).__name__}: {error}'
        finally:
            trainer.events.put((name, None))

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    trainer.add(name, ThreadLink(worker, thread))


def train(task: TrainingTask, devices: Sequence[str], planner: Planner,
          faults: Mapping[str, tuple[int, str]] | None = None, every: int = 3,
          timeout: float = 5.0, deadline: float = 120.0, late: Sequence[str] = (),
          graph: LayerGraph | None = None, base: tuple[int, Any] | None = None,
          pauses: Sequence[int] = (), expected: bool = True,
          tasks: Mapping[str, TrainingTask] | None = None,
          computes_on: Mapping[str, str] | None = None, key: bytes = b'',
          ) -> tuple[Trainer, dict[str, torch.Tensor]]:
    """
    Train a task; return the trainer and the state of all layers at the end.

    Devices in `late` join at round 4, one after the other; at the rounds of `pauses` all leave
    their plan, and go on.  `expected` faults must happen.  A device may have a task of its own,
    and compute on something else than the CPU.  With a `key` all that crosses sockets is sealed.
    """
    graph, exchange = graph or capture(task), Exchange('127.0.0.1', key)
    sizes = tuple(float(graph.nbytes(k)) for k in range(len(graph.layers)))
    commit = RoundCommit(task.rounds, sizes, planner, 2 * timeout)
    trainer, waiting, resting = Trainer(commit, exchange), list(late), sorted(pauses, reverse=True)
    settings, dying = Settings(timeout, every), Faults(dict(faults or {}))

    def progress(state: RoundCommit) -> None:
        if waiting and state.committed >= 4:
            start(trainer, waiting.pop(), task, graph, settings, dying, key)
        if resting and state.committed >= resting[-1] and state.phase is Phase.TRAINING:
            resting.pop()
            trainer.pause()
        elif state.phase is Phase.PAUSED and state.plan is not None:
            trainer.resume()

    trainer.progress = progress
    if base:
        trainer.start_from(*base)
    for name in devices:
        start(trainer, name, (tasks or {}).get(name, task), graph,
              replace(settings, device=(computes_on or {}).get(name, 'cpu')), dying, key)
    trainer.begin(len(devices))
    try:
        trainer.run(deadline)
        assert not expected or not dying.at, f'{dying.at} did not happen'
        return trainer, trainer.collect()
    finally:
        trainer.close()
        exchange.close()


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
                 leaving: str = '', tasks: Mapping[str, TrainingTask] | None = None) -> None:
        graph = prepared.graph
        self._prepared, self._leaving, self._tasks = prepared, leaving, tasks or {}
        self.trainer = trainer_of(prepared.task, graph, fixed(len(graph.layers), prepared.task),
                                  5.0, Exchange('127.0.0.1'), progress, base)
        self.trainer.beats = False

    def __enter__(self) -> Threads:
        for name in 'ab':
            task = self._tasks.get(name, self._prepared.task)
            start(self.trainer, name, task, self._prepared.graph, Settings(5.0, 3), Faults())
        self.trainer.begin(2)
        for name in self._leaving:
            self.trainer.links[name] = Leaving(self.trainer.links[name], self.trainer)
        return self

    def __exit__(self, *error: object) -> None:
        self.trainer.close()


def shuffled(seed: int, layers: int, task: TrainingTask,
             data: tuple[tuple[str, int], ...] = ()) -> Planner:
    """
    Return a planner with stages, groups and shares that are random, the same for the same.

    `data` has how many samples lie on a device.
    """
    largest = -(-task.grains // task.micro_batches)

    def plan(devices: tuple[str, ...], before: TrainingPlan | None) -> TrainingPlan | None:
        rng = random.Random(f'{seed} {devices}')
        names = list(devices)
        rng.shuffle(names)
        if rng.random() < 0.25:
            names = names[:task.grains]
            cuts = [0, *sorted(rng.sample(range(1, task.grains), len(names) - 1)), task.grains]
            return TrainingPlan((TrainingStage(0, layers, tuple(
                (name, high - low) for name, low, high in zip(names, cuts, cuts[1:]))),),
                task.grains, task.micro_batches, of_round=True, data=data)
        names = names[:layers * largest]
        count = rng.randint(-(-len(names) // largest), min(len(names), layers))
        while True:
            ends = [0, *sorted(rng.sample(range(1, len(names)), count - 1)), len(names)]
            groups = [names[a:b] for a, b in zip(ends, ends[1:])]
            if max(map(len, groups)) <= largest:
                break
        edges = [0, *sorted(rng.sample(range(1, layers), count - 1)), layers]
        stages = []
        for group, a, b in zip(groups, edges, edges[1:]):
            cuts = [0, *sorted(rng.sample(range(1, largest), len(group) - 1)), largest]
            stages.append(TrainingStage(a, b, tuple(
                (name, high - low) for name, low, high in zip(group, cuts, cuts[1:]))))
        return TrainingPlan(tuple(stages), task.grains, task.micro_batches, data=data)
    return plan


def fixed(layers: int, task: TrainingTask, uneven: bool = True) -> Planner:
    """Return a planner that gives pairs of devices a stage each, with uneven shares."""
    def plan(devices: tuple[str, ...], before: TrainingPlan | None) -> TrainingPlan | None:
        largest = -(-task.grains // task.micro_batches)
        groups, rest = [], list(devices)
        while rest:
            take = 2 if len(rest) > 2 and largest >= 2 and len(groups) % 2 == 0 else 1
            groups.append(rest[:take])
            rest = rest[take:]
        while len(groups) > layers:
            groups.pop()
        edges = [round(k * layers / len(groups)) for k in range(len(groups) + 1)]
        stages = []
        for group, a, b in zip(groups, edges, edges[1:]):
            first = max(1, largest // 3) if uneven else largest // 2
            shares = (largest,) if len(group) == 1 else (first, largest - first)
            stages.append(TrainingStage(a, b, tuple(zip(group, shares))))
        return TrainingPlan(tuple(stages), task.grains, task.micro_batches)
    return plan


def cross_entropy(outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    return F.cross_entropy(outputs, targets, reduction='none')


class Residual(nn.Module):
    def __init__(self, channels: int) -> None:
        super().__init__()
        self.conv = nn.Conv2d(channels, channels, 3, padding=1, bias=False)
        self.norm = nn.BatchNorm2d(channels)
        self.relu = nn.ReLU(inplace=True)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.relu(self.norm(self.conv(x)) + x)


class Encoder(nn.Module):
    """A transformer over 8 tokens of 8 numbers."""

    def __init__(self, dropout: float = 0.0) -> None:
        super().__init__()
        self.embed = nn.Linear(8, 16)
        self.blocks = nn.ModuleList([Block(dropout) for _ in range(2)])
        self.head = nn.Linear(16, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.embed(x.flatten(1, 2))
        for block in self.blocks:
            x = block(x)
        return self.head(x.mean(1))


class Block(nn.Module):
    def __init__(self, dropout: float) -> None:
        super().__init__()
        self.first, self.second = nn.LayerNorm(16), nn.LayerNorm(16)
        self.attend = nn.MultiheadAttention(16, 2, dropout=dropout, batch_first=True)
        self.up, self.down = nn.Linear(16, 32), nn.Linear(32, 16)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.first(x)
        x = x + self.dropout(self.attend(y, y, y, need_weights=False)[0])
        return x + self.dropout(self.down(F.gelu(self.up(self.second(x)))))


def sgd(named: Sequence[tuple[str, nn.Parameter]]) -> torch.optim.Optimizer:
    """SGD with momentum; weights decay, biases and norms do not."""
    return torch.optim.SGD([
        {'params': [p for _, p in named if p.dim() > 1], 'weight_decay': 1e-3},
        {'params': [p for _, p in named if p.dim() <= 1]}], lr=0.05, momentum=0.9)


def adam(named: Sequence[tuple[str, nn.Parameter]]) -> torch.optim.Optimizer:
    return torch.optim.Adam([p for _, p in named], lr=1e-3)


def gentle(number: int) -> float:
    """Return a factor on rates with which rounding does not grow."""
    return 0.02


def make_task(model: str = 'cnn', optimiser: Any = sgd, dtype: torch.dtype = torch.float64,
              **changes: Any) -> TrainingTask:
    """Return a small task with data of its own."""
    torch.manual_seed(1)
    module = {
        'cnn': lambda: nn.Sequential(
            nn.Conv2d(1, 8, 3, padding=1, bias=False), nn.BatchNorm2d(8), nn.ReLU(inplace=True),
            Residual(8), Residual(8), nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(32, 10)),
        'transformer': Encoder,
        'dropout': lambda: Encoder(0.2), 'mobilenet': mobilenet, 'typed': Typed, 'small': Small,
    }[model]().to(dtype)
    data = data_of(model, dtype)
    figures: dict[str, Any] = {'batch': 22, 'grain': 3, 'micro_batches': 3, 'rounds': 20}
    if model == 'mobilenet':  # its random weights let rounding grow tenfold a round otherwise
        figures |= {'batch': 12, 'clip': 0.1}
    if model == 'small':
        figures |= {'batch': 24, 'schedule': gentle}  # batch norm refuses a grain of one sample
    figures |= changes
    return TrainingTask(module, cross_entropy, optimiser, data, **figures)


def difference(state: Mapping[str, torch.Tensor], alone: OneProcess) -> float:
    """Return the largest difference of weights and statistics, relative to the largest value."""
    wanted = {f'p:{name}': p.detach() for name, p in alone.module.named_parameters()}
    wanted |= {f'b:{name}': b for name, b in alone.module.named_buffers()}
    found = {name for name in state if name[:2] in ('p:', 'b:')}
    assert found <= set(wanted)
    assert found >= {f'p:{name}' for name, p in alone.module.named_parameters()
                     if p.grad is not None}
    assert found >= {f'b:{name}.running_mean' for name, norm in alone.module.named_modules()
                     if getattr(norm, 'num_batches_tracked', None) is not None
                     and int(norm.num_batches_tracked)}
    return max(float((state[name] - wanted[name]).abs().max()
                     / wanted[name].abs().max().clamp(min=1e-3)) for name in found)


#: Tasks by name, for worker processes: `training_fleet.py:cnn_sgd`.
cnn_sgd, cnn_adam = partial(make_task, 'cnn', sgd), partial(make_task, 'cnn', adam)
dropout_sgd, dropout_adam = partial(make_task, 'dropout', sgd), partial(make_task, 'dropout', adam)
small_sgd, small_adam = partial(make_task, 'small', sgd), partial(make_task, 'small', adam)


def long_sgd() -> TrainingTask:
    """Return a task of 600 rounds, or as the environment says; rounding does not grow in them."""
    return make_task('small', sgd, rounds=int(os.environ.get('INTRADP_ROUNDS', '600')),
                     schedule=lambda number: 1e-4)


def many_rounds() -> TrainingTask:
    """Return a task of as many rounds, and of the network, that the environment names."""
    return make_task(os.environ.get('INTRADP_NETWORK', 'cnn'), adam,
                     rounds=int(os.environ.get('INTRADP_ROUNDS', '500')))
