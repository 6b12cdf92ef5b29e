# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""What losses, modules and data remember or share unseen: refused, or the same on all devices."""
from __future__ import annotations

from array import array
from collections import deque
from collections.abc import Callable, Iterator
from datetime import date, datetime
import itertools
import os
import random
import sys
import threading
import time as calendar
from time import time
import types
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
import torch.nn.functional as F  # noqa: N812
from torch.utils.data import IterableDataset
from training_fleet import cross_entropy, sgd, shuffled, train

from intradp_ros.systems.training.base.items import Items
from intradp_ros.systems.training.base.task import (
    autocast_of,
    samples_of,
    TaskError,
    TensorData,
    TrainingTask,
)
from intradp_ros.systems.training.base.user_code import remembered
from intradp_ros.systems.training.layers.layer_capture import capture
from intradp_ros.systems.training.layers.round_trial import try_rounds
from intradp_ros.systems.training.layers.task_trial import try_task

SAMPLES = 40
Call = Callable[..., Any]


def samples() -> tuple[torch.Tensor, torch.Tensor]:
    return torch.randn(SAMPLES, 6).double(), torch.arange(SAMPLES) % 4


def network() -> nn.Sequential:
    return nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 4)).double()


def task_of(module: nn.Module | None = None, loss: Call = cross_entropy, data: Any = None,
            **changes: Any) -> TrainingTask:
    torch.manual_seed(9)
    x, labels = samples()
    return TrainingTask(module or network(), loss, sgd, data or TensorData((x,), labels), **(
        {'batch': 12, 'grain': 4, 'micro_batches': 2, 'rounds': 3} | changes))


def tried(task: TrainingTask) -> Any:
    try_task(task)
    graph = capture(task)
    try_rounds(task, graph)
    return graph


def spread(task: TrainingTask) -> float:
    """Return how far apart the weights of several plans are."""
    graph = tried(task)
    first, *others = (train(task, devices, shuffled(seed, len(graph.layers), task), graph=graph)[1]
                      for devices, seed in (('a', 1), ('ab', 2), ('ab', 7)))
    return max(float((value - other[name]).abs().max()) for other in others
               for name, value in first.items())


@pytest.mark.parametrize('part', [
    nn.Dropout(0.5), nn.AlphaDropout(0.5), nn.RReLU(), nn.InstanceNorm1d(4),
    nn.BatchNorm1d(4, affine=False, track_running_stats=False)], ids=lambda one: str(one)[:12])
def test_what_a_loss_draws_or_normalises_goes_by_grain(part: nn.Module) -> None:
    def loss(found: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        if isinstance(part, nn.InstanceNorm1d):
            return cross_entropy(part(found.T[None])[0].T, labels)
        return cross_entropy(part(found), labels)
    assert spread(task_of(loss=loss)) < 1e-12


def test_a_linear_hook_on_outputs_goes_by_grain() -> None:
    def loss(found: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        if found.requires_grad:
            found.register_hook(lambda g: g - g.mean(0))
        return cross_entropy(found, labels)
    assert spread(task_of(loss=loss)) < 1e-12


class _Clipped(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:  # type: ignore[override]
        return x.clone()

    @staticmethod
    def backward(ctx: Any, g: torch.Tensor) -> torch.Tensor:  # type: ignore[override]
        return g.clamp(-1e-2, 1e-2)


def hooked(hook: Call) -> Call:
    def loss(found: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        if found.requires_grad:
            found.register_hook(hook)
        return cross_entropy(found, labels)
    return loss


@pytest.mark.parametrize('loss', [
    hooked(lambda g: g.clamp(-1e-2, 1e-2)), hooked(lambda g: g / g.norm()),
    hooked(lambda g: g.clamp(-50, 50)), hooked(torch.sign),
    lambda found, labels: cross_entropy(_Clipped.apply(found), labels)])
def test_gradients_of_a_loss_that_are_not_linear_are_refused(loss: Call) -> None:
    with pytest.raises(TaskError, match='times the loss are not .* times its gradients'):
        tried(task_of(loss=loss))


def counter(kind: str) -> tuple[Call, Any]:
    """Return what counts on, unseen, and what holds the count."""
    if kind == 'itertools':
        number = itertools.count()
        return lambda: next(number), number
    if kind == 'cycle':
        turns = itertools.cycle([1, 2, 3, 4, 5])
        return turns.__next__, turns
    if kind == 'list iterator':
        row = iter(list(range(5000)))
        return lambda: next(row), row
    if kind == 'generator':
        def counts() -> Iterator[int]:
            yield from range(5000)
        made = counts()
        return lambda: next(made), made
    if kind == 'loop of a generator':
        def ones() -> Iterator[int]:
            for number in [1] * 5000:  # noqa: UP028
                yield number
        once = ones()
        return lambda: next(once), once
    if kind == 'deque':
        line = deque[int](maxlen=5000)
        return lambda: line.append(1), line
    if kind == 'bytes':
        octets = bytearray(8)

        def more() -> None:
            octets[0] = (octets[0] + 1) % 250
        return more, octets
    if kind == 'array':
        numbers = array('q', [0])

        def add() -> None:
            numbers[0] += 1
        return add, numbers
    if kind == 'slots':
        class Slots:
            __slots__ = ('__k',)

            def __init__(self) -> None:
                self.__k = 0

            def __call__(self) -> None:
                self.__k += 1
        slots = Slots()
        return slots, slots
    if kind == 'static method':
        held = [0]

        class Static:
            @staticmethod
            def step() -> None:
                held[0] += 1
        return lambda: Static.step(), held
    if kind == 'environment':
        os.environ['INTRADP_TEST_COUNT'] = '0'

        def environment() -> None:
            os.environ['INTRADP_TEST_COUNT'] += '1'
        return environment, os.environ
    if kind == 'base class':
        steps = [0]

        class Base:
            def __call__(self) -> None:
                steps[0] += 1

        class Derived(Base):
            pass
        return Derived(), steps
    if kind == 'behind a long list':
        all_names, calls = [str(k) for k in range(50_000)], [0]

        def behind() -> None:
            assert all_names
            calls[0] += 1
        return behind, calls
    assert kind == 'imported module'
    sys.modules['counts_of_a_test'] = module = types.ModuleType('counts_of_a_test')
    module.calls = 0  # type: ignore[attr-defined]

    def imported() -> None:
        import counts_of_a_test  # type: ignore[import-not-found]
        counts_of_a_test.calls += 1
    return imported, module


KINDS = ['itertools', 'cycle', 'list iterator', 'generator', 'loop of a generator',
         'deque', 'bytes', 'array', 'slots',
         'static method', 'base class', 'environment', 'behind a long list', 'imported module']


@pytest.mark.parametrize('kind', KINDS)
def test_a_loss_that_counts_is_refused(kind: str) -> None:
    step, _ = counter(kind)

    def loss(found: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        step()
        return cross_entropy(found, labels)
    with pytest.raises(TaskError, match='loss.* changes with each pass'):
        tried(task_of(loss=loss))


def test_a_module_that_counts_is_refused() -> None:
    step, _ = counter('itertools')

    class Counting(nn.Sequential):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            step()
            return super().forward(x)
    with pytest.raises(TaskError, match='changes with each pass'):
        tried(task_of(Counting(*network())))


def test_what_a_thread_notes_is_not_what_a_task_remembers() -> None:
    """Progress bars of libraries have one, which the functions of their modules lead to."""
    bar = threading.Thread()
    found = []
    for bar.woken in range(2):  # type: ignore[attr-defined]
        found.append(remembered(loss=lambda: bar))
    assert found[0] == found[1]


def test_an_average_of_weights_that_a_hook_keeps_is_refused() -> None:
    """It is the weights themselves until they move."""
    module = network()
    average = [p.detach().clone() for p in module.parameters()]

    @torch.no_grad()
    def hook(part: nn.Module, *given: Any) -> None:
        for held, p in zip(average, part.parameters()):
            held.lerp_(p, 0.1)
    module.register_forward_hook(hook)
    with pytest.raises(TaskError, match='an average of weights, be a buffer'):
        tried(task_of(module))


class _CountingLoss(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer('calls', torch.zeros(()))

    def forward(self, found: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        self.calls += 1
        return cross_entropy(found, labels)


def test_a_loss_that_changes_its_buffers_is_refused() -> None:
    with pytest.raises(TaskError, match='loss.calls changes with each pass'):
        tried(task_of(loss=_CountingLoss()))
    norm = nn.BatchNorm1d(4, affine=False).double()
    with pytest.raises(TaskError, match='track_running_stats=False'):
        tried(task_of(loss=lambda found, labels: cross_entropy(norm(found), labels)))


class _Dataset:
    """Samples with something done to each; what was taken may be kept."""

    def __init__(self, do: Call, keep: bool = False) -> None:
        self.x, self.labels = samples()
        self.do, self.keep, self.kept, self.calls = do, keep, dict[int, torch.Tensor](), 0

    def __len__(self) -> int:
        return SAMPLES

    def __getitem__(self, k: int) -> tuple[torch.Tensor, torch.Tensor]:
        if not self.keep:
            return self.do(self, k), self.labels[k]
        if k not in self.kept:
            self.kept[k] = self.do(self, k)
        return self.kept[k], self.labels[k]


def noise(data: Any, k: int) -> torch.Tensor:
    return data.x[k] + torch.randn(6).double()


def own_noise(data: Any, k: int) -> torch.Tensor:
    return data.x[k] + torch.randn(6, generator=torch.Generator().manual_seed(k)).double()


def kept_elsewhere() -> Call:
    kept = dict[int, torch.Tensor]()

    def do(data: Any, k: int) -> torch.Tensor:
        if k not in kept:
            kept[k] = noise(data, k)
        return kept[k]
    return do


def in_one_place() -> Call:
    place = torch.zeros(6).double()
    return lambda data, k: place.copy_(data.x[k])


def logging(data: Any, k: int) -> torch.Tensor:
    data.log = [*getattr(data, 'log', ()), k]
    return data.x[k]


def counting(data: Any, k: int) -> torch.Tensor:
    data.calls += 1
    return data.x[k]


def rarely(draw: Call) -> Call:
    """Return what changes a sample so rarely that no trial sees it."""
    return lambda data, k: data.x[k] * float(draw() > 1e-12)


def reseeded(data: Any, k: int) -> torch.Tensor:
    torch.manual_seed(k)
    return noise(data, k)


def hidden_clock(data: Any, k: int) -> torch.Tensor:
    from time import monotonic
    return data.x[k] * (monotonic() // 1e5)


def numpys_clock(data: Any, k: int) -> torch.Tensor:
    return data.x[k] * float(np.datetime64('today').astype(int) < 1)


def clock_of_a_package(reads: str) -> Call:
    """Return what an installed package makes of a sample: it logs by a clock, or goes by it."""
    names: dict[str, Any] = {'__name__': 'robot_data'}
    exec(compile(f'from time import time\ndef made(data, k):\n    {reads}',
                 '/usr/lib/python3/site-packages/robot_data.py', 'exec'), names)
    return names['made']


def timing(data: Any, k: int) -> torch.Tensor:
    begun, found = time(), data.x[k]
    known = -1.0 < time() - begun < 1e3 and isinstance(datetime.now(), datetime)
    return found if known else None


@pytest.mark.parametrize('dataset, reason', [
    (_Dataset(rarely(lambda: torch.rand(()))), 'draws by generators of the process'),
    (_Dataset(rarely(random.random)), 'draws by generators of the process'),
    (_Dataset(rarely(lambda: np.random.rand())), 'draws by generators of the process'),
    (_Dataset(rarely(np.random.RandomState(0).rand)), 'changes with each time'),
    (_Dataset(noise, keep=True), 'draw at random when a sample is first taken, and keep it'),
    (_Dataset(kept_elsewhere()), 'draw at random when a sample is first taken, and keep it'),
    (_Dataset(in_one_place()), 'sample . is another one when it is taken alone'),
    (_Dataset(counting), 'data.dataset.calls changes with each time that samples are taken'),
    (_Dataset(logging), 'data.dataset.log changes with each time'),
    (_Dataset(lambda data, k: data.x[k].clone().requires_grad_() * 1), 'with a gradient'),
    (_Dataset(lambda data, k: data.x[k] * (time() // 3600 % 24)), 'time.time at .*other samples'),
    (_Dataset(lambda data, k: data.x[k] * (6 <= datetime.now().hour < 18)), 'datetime.now at'),
    (_Dataset(lambda data, k: data.x[k] * (date.today().month < 7)), 'today at .*other samples'),
    (_Dataset(lambda data, k: data.x[k] * calendar.localtime().tm_yday), 'localtime at .*other'),
    (_Dataset(lambda data, k: data.x[k] * calendar.strftime('%H:%M').count('1')), 'strftime at'),
    (_Dataset(hidden_clock), 'monotonic at .*import time, or datetime, on top of the module'),
    (_Dataset(lambda data, k: data.x[k] * (time() // 1e4), keep=True), 'is first taken'),
    (_Dataset(numpys_clock), 'reads a clock, datetime64 at .*import time, or datetime, on top'),
    (_Dataset(clock_of_a_package('return data.x[k] * (time() // 3600 % 24)')),
     'time.time at /usr/lib/python3/site-packages/robot_data.py:3, and returns other samples'),
])
def test_data_that_are_not_the_same_on_all_devices_are_refused(dataset: Any,
                                                               reason: str) -> None:
    with pytest.raises(TaskError, match=reason):
        tried(task_of(data=Items(dataset)))


@pytest.mark.parametrize('dataset', [_Dataset(own_noise, keep=True), _Dataset(own_noise),
                                     _Dataset(lambda data, k: data.x[k], keep=True),
                                     _Dataset(reseeded), _Dataset(timing), _Dataset(
    clock_of_a_package('from time import time as now; now(); return data.x[k]'))])
def test_data_that_keep_what_they_would_make_again_are_trained_with(dataset: Any) -> None:
    tried(task_of(data=Items(dataset)))


def test_samples_by_which_weights_are_judged_neither_draw_nor_go_by_time() -> None:
    check = Items(_Dataset(rarely(random.random)))
    with pytest.raises(TaskError, match='check.take draws by generators of the process'):
        tried(task_of(check=check, validate_every=2))
    check = Items(_Dataset(lambda data, k: data.x[k] * (time() // 3600 % 24)))
    with pytest.raises(TaskError, match='check.take reads a clock, time.time'):
        tried(task_of(check=check, validate_every=2))


def test_an_iterable_dataset_is_refused() -> None:
    class Row(IterableDataset[int]):
        def __iter__(self) -> Iterator[int]:
            return iter(range(9))
    with pytest.raises(TaskError, match='Row gives its samples in a row, not by number'):
        Items(Row())


def tied(module: nn.Sequential) -> None:
    module[0] = nn.Linear(6, 6).double()
    module[2] = nn.Linear(6, 6).double()
    module[2].weight.data = module[0].weight.data


def followed(module: nn.Sequential) -> None:
    module.register_buffer('seen', module[0].weight.data.view(-1)[5:9])


@pytest.mark.parametrize('share, names', [(tied, '0.weight and 2.weight'),
                                          (followed, '0.weight and seen')])
def test_parameters_and_buffers_that_share_memory_are_refused(share: Call, names: str) -> None:
    module = network()
    share(module)
    with pytest.raises(TaskError, match=f'{names} share memory'):
        try_task(task_of(module))


def test_parts_of_one_memory_that_do_not_overlap_are_trained() -> None:
    module, whole = network(), torch.randn(8, 7).double()
    module[0].weight = nn.Parameter(whole[:, :6])
    module[0].bias = nn.Parameter(whole[:, 6])
    module.register_buffer('one', whole.new_ones(4)[:3])
    module.register_buffer('other', module.one[1:])
    try_task(task_of(module))


def test_counts_with_a_gradient_are_refused() -> None:
    def loss(found: torch.Tensor, labels: torch.Tensor) -> Any:
        weight = found.abs().sum(1)
        return cross_entropy(found, labels) * weight, weight
    with pytest.raises(TaskError, match='counts.detach'):
        try_task(task_of(loss=loss))


def test_features_that_a_hook_keeps_are_refused() -> None:
    kept, module = list[torch.Tensor](), network()
    module[0].register_forward_hook(lambda part, given, made: kept.append(made))
    with pytest.raises(TaskError, match='loss.kept changes with each pass'):
        tried(task_of(module, lambda found, labels: cross_entropy(found, labels)
                      + kept[-1].abs().mean(1)))


class _Ensemble(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.w = nn.Parameter(torch.randn(3, 6, 4).double())

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.vmap(lambda w: x @ w)(self.w).mean(0)


class _Penalised(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.net = network()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x.requires_grad_()
        made = self.net(x)
        slope, = torch.autograd.grad(made.sum(), x, create_graph=True)
        return made + slope.pow(2).sum(1, keepdim=True)


class _Statistics(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.net, self.mean, self.var = network(), torch.zeros(4).double(), torch.ones(4).double()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return F.batch_norm(self.net(x), self.mean, self.var, training=True)


@pytest.mark.parametrize('module, reason', [
    (_Ensemble, 'uses torch.vmap'), (_Penalised, 'a pass that takes some itself'),
    (_Statistics, 'mean, a tensor that is neither a parameter nor a buffer')])
def test_modules_that_failed_later_are_refused_at_once(module: Call, reason: str) -> None:
    with pytest.raises(TaskError, match=reason):
        tried(task_of(module()))


def test_a_loss_runs_under_autocast_as_the_forward_pass_does() -> None:
    def loss(found: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        return F.cross_entropy(found, labels, reduction='none')

    def task() -> TrainingTask:
        torch.manual_seed(9)
        x, labels = samples()
        return TrainingTask(network().float(), loss, sgd, TensorData((x.float(),), labels), 12, 4,
                            2, 1, autocast=torch.bfloat16)
    ours, theirs = task(), task()
    graph = tried(ours)
    trainer, _ = train(ours, 'a', shuffled(1, len(graph.layers), ours), graph=graph)
    inputs, labels = theirs.data.take(range(SAMPLES))
    order = samples_of(theirs.seed, SAMPLES, 12, 0)
    with autocast_of(torch.bfloat16):
        wanted = loss(theirs.module(inputs[0][order]), labels[order]).mean()
    assert wanted.dtype == torch.float32
    assert trainer.commit.figures[0]['loss'] == pytest.approx(float(wanted.detach()), rel=1e-5)
