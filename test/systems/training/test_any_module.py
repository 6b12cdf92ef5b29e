# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""Modules that others write: trained as one process trains them, or refused with the reason."""
from __future__ import annotations

from dataclasses import replace
import random

import pytest
import torch
from torch import nn
import torch.nn.functional as F  # noqa: N812
from torch.nn.utils import parametrizations
from torch.utils.checkpoint import checkpoint
from training_fleet import cross_entropy, difference, shuffled, train
from training_models import train_alone_drawing

from intradp_ros.systems.training.base.task import TaskError, TensorData, TrainingTask
from intradp_ros.systems.training.layers.layer_capture import capture
from intradp_ros.systems.training.layers.stage_interpreter import Pass, run_pass
from intradp_ros.systems.training.layers.task_trial import try_task
from intradp_ros.systems.training.plan.training_plan import TrainingPlan, TrainingStage
from intradp_ros.systems.training.service.trainer import TrainingError

SAMPLES = 40


class Net(nn.Module):
    """What `call` computes with the parts that are given."""

    def __init__(self, call, **parts):
        super().__init__()
        self.call = call
        for name, part in parts.items():
            setattr(self, name, part)

    def forward(self, *inputs):
        return self.call(self, *inputs)


def ends(**parts):
    """Return the first and the last layer of a network of twelve channels, and more."""
    return {'a': nn.Linear(64, 12), 'o': nn.Linear(12, 10), **parts}


def shared_norm():
    return Net(lambda s, x: s.o(torch.tanh(s.n(s.b(torch.tanh(s.n(s.a(x.flatten(1)))))))),
               **ends(b=nn.Linear(12, 12), n=nn.BatchNorm1d(12)))


def instance_norm():
    return nn.Sequential(
        nn.Conv2d(1, 4, 3), nn.InstanceNorm2d(4, affine=True, track_running_stats=True),
        nn.Tanh(), nn.Flatten(), nn.Linear(144, 10))


def own_norm():
    """Statistics under names of their own."""
    def call(s, x):
        return s.o(torch.tanh(F.batch_norm(s.a(x.flatten(1)), s.centre, s.spread, None, None,
                                           True, 0.2)))
    made = Net(call, **ends())
    made.register_buffer('centre', torch.zeros(12))
    made.register_buffer('spread', torch.ones(12))
    return made


def norm_of_rows_in_another_order():
    def call(s, x):
        h = s.n(s.a(x.squeeze(1)).transpose(0, 1).flatten(0, 1))
        return s.o(torch.tanh(h).unflatten(0, (8, -1)).mean(0))
    return Net(call, a=nn.Linear(8, 12), n=nn.BatchNorm1d(12), o=nn.Linear(12, 10))


def dropout_of_rows_in_another_order():
    def call(s, x):
        return s.o(torch.tanh(F.dropout(s.a(x.squeeze(1)).transpose(0, 1), 0.2)).mean(0))
    return Net(call, a=nn.Linear(8, 12), o=nn.Linear(12, 10))


def lstm():
    return Net(lambda s, x: s.o(s.r(x.squeeze(1))[0][:, -1]),
               r=nn.LSTM(8, 12, 2, batch_first=True), o=nn.Linear(12, 10))


def gru_of_rows_in_another_order():
    return Net(lambda s, x: s.o(s.r(x.squeeze(1).transpose(0, 1))[0].mean(0)),
               r=nn.GRU(8, 6, bidirectional=True), o=nn.Linear(12, 10))


def samples_that_see_each_other():
    def call(s, x):
        h = s.a(x.flatten(1))
        count = x.shape[0]
        h = torch.softmax(h @ h.T, 1) @ h / count + torch.arange(count)[:, None]
        return s.o(torch.tanh(h - h.mean(0)))
    return Net(call, **ends())


def gradients_that_see_each_other():
    """Each word's gradient is divided by how often it is among those of all samples."""
    return Net(lambda s, x: s.o(torch.tanh(s.e((x.flatten(1) > 0).long())).mean(1)),
               e=nn.Embedding(2, 12, scale_grad_by_freq=True), o=nn.Linear(12, 10))


class Tied(nn.Module):
    """Its first layer has its last one's weights, which has another name first."""

    def __init__(self):
        super().__init__()
        self.head, self.middle = nn.Linear(10, 10, bias=False), nn.Linear(10, 10)
        self.embed = nn.Embedding(10, 10)
        self.embed.weight = self.head.weight

    def forward(self, x):
        return self.head(torch.tanh(self.middle(self.embed((x.flatten(1) > 0).long()).mean(1))))


def frozen_start():
    made = nn.Sequential(nn.Flatten(), nn.Linear(64, 12), nn.Tanh(), nn.Linear(12, 12), nn.Tanh(),
                         nn.Linear(12, 10))
    for number in (1, 3):
        made[number].weight.requires_grad_(False)
    return made


def without_gradient():
    """Parameters that have none are not stepped: weight decay does not reach them either."""
    def call(s, x):
        with torch.no_grad():
            h = s.n(s.a(x.flatten(1)))
        return s.o(torch.tanh(s.b(h)) * s.w.detach())
    made = Net(call, **ends(b=nn.Linear(12, 12), n=nn.BatchNorm1d(12), never=nn.Linear(3, 3)))
    made.w = nn.Parameter(torch.ones(12))
    return made


def in_eval_mode_partly():
    made = nn.Sequential(
        nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.Tanh(), nn.Flatten(), nn.Linear(144, 12),
        nn.BatchNorm1d(12), nn.Linear(12, 10))
    made[1].eval()
    return made


def complex_values():
    def call(s, x):
        z = torch.fft.rfft(torch.tanh(s.a(x.flatten(1)))) * s.w
        z = torch.complex(z.real * s.v, z.imag + s.v)
        return s.o(torch.fft.irfft(z * s.v, n=12))
    made = Net(call, **ends())
    made.w, made.v = nn.Parameter(torch.ones(7)), nn.Parameter(torch.ones(7))
    return made


def whole_parameters():
    made = Net(lambda s, x: s.o(torch.tanh(s.a(x.flatten(1)))[:, s.order]), **ends())
    made.order = nn.Parameter(torch.arange(11, -1, -1), requires_grad=False)
    return made


def dropped_weights():
    made = Net(lambda s, x: s.o(torch.tanh(F.linear(x.flatten(1), F.dropout(s.w, 0.2)))),
               o=nn.Linear(12, 10))
    made.w = nn.Parameter(torch.randn(12, 64) * 0.1)
    return made


def decaying(named):
    return torch.optim.SGD([p for _, p in named], lr=0.05, momentum=0.9, weight_decay=1e-2)


def task_of(make, **changes) -> TrainingTask:
    torch.manual_seed(3)
    module = make()
    module = module if any(p.is_complex() for p in module.parameters()) else module.double()
    inputs = torch.randn(SAMPLES, 1, 8, 8, dtype=torch.float64)
    figures = {'batch': 14, 'grain': 4, 'micro_batches': 2, 'rounds': 3} | changes
    return TrainingTask(**{
        'module': module, 'loss': cross_entropy, 'optimiser': decaying,
        'data': TensorData((inputs,), torch.randint(0, 10, (SAMPLES,)))} | figures)


def spectral():
    """Return a network whose power iterations go on with each round."""
    norm = parametrizations.spectral_norm
    return nn.Sequential(
        norm(nn.Conv2d(1, 4, 3)), nn.BatchNorm2d(4), nn.Tanh(), nn.Flatten(),
        norm(nn.Linear(144, 12), n_power_iterations=2), nn.Tanh(), norm(nn.Linear(12, 10)))


def shared_spectral():
    """Return a network of which a part is used twice, under two names."""
    part = parametrizations.spectral_norm(nn.Linear(12, 12))
    return nn.Sequential(nn.Flatten(), nn.Linear(64, 12), part, nn.Tanh(), part,
                         nn.Linear(12, 10))


def shared_norm_under_two_names():
    made = nn.Sequential(nn.Flatten(), nn.Linear(64, 12), nn.BatchNorm1d(12), nn.Tanh(),
                         nn.Linear(12, 12))
    return made.extend([made[2], nn.Tanh(), nn.Linear(12, 10)])


def dropout_after_rows_in_another_order():
    """Return a network whose values lie in memory in another order than their rows."""
    def call(s, x):
        h = torch.tanh(s.a(x.squeeze(1).transpose(0, 1))).transpose(0, 1)
        return s.o(s.drop(s.b(s.drop(h)) + h).mean(1))
    return Net(call, a=nn.Linear(8, 12), b=nn.Linear(12, 12), drop=nn.Dropout(0.2),
               o=nn.Linear(12, 10))


def channels_last(module: nn.Module) -> nn.Module:
    return module.to(memory_format=torch.channels_last)  # type: ignore[call-overload, no-any-return]


def view_of_channels_last():
    """Return a network that views values as they lie in memory, which a border changes."""
    def call(s, x):
        h = torch.tanh(s.b(torch.tanh(s.a(x))))
        return s.o(h.permute(0, 2, 3, 1).view(x.shape[0], -1))
    return channels_last(Net(call, a=nn.Conv2d(1, 4, 3), b=nn.Conv2d(4, 4, 3),
                             o=nn.Linear(64, 10)))


def old_spectral():
    norm = nn.utils.spectral_norm
    return nn.Sequential(nn.Flatten(), norm(nn.Linear(64, 12)), nn.Tanh(), norm(nn.Linear(12, 10)))


def weight_norm():
    norm = parametrizations.weight_norm
    return nn.Sequential(nn.Flatten(), norm(nn.Linear(64, 12)), nn.Tanh(), norm(nn.Linear(12, 10)))


def orthogonal():
    return nn.Sequential(nn.Flatten(), parametrizations.orthogonal(nn.Linear(64, 12)), nn.Tanh(),
                         nn.Linear(12, 10))


def counted_rounds():
    """Return a network with temperatures that fall with each round."""
    def call(s, x):
        s.seen += 1
        s.heat.mul_(0.9)
        return s.o(torch.tanh(s.a(x.flatten(1)) * s.heat) / s.seen)
    made = Net(call, **ends())
    made.register_buffer('seen', torch.zeros((), dtype=torch.long))
    made.register_buffer('heat', torch.ones(12))
    return made


MODULES = [
    spectral, shared_spectral, shared_norm_under_two_names, dropout_after_rows_in_another_order,
    old_spectral, weight_norm, orthogonal, counted_rounds,
    shared_norm, instance_norm, own_norm, norm_of_rows_in_another_order,
    dropout_of_rows_in_another_order, lstm, gru_of_rows_in_another_order,
    samples_that_see_each_other, gradients_that_see_each_other, Tied, frozen_start,
    without_gradient, in_eval_mode_partly, complex_values, whole_parameters, dropped_weights]


@pytest.mark.parametrize('make', MODULES)
def test_three_devices_train_as_one_process(make):
    """One of them dies on the way."""
    task = task_of(make)
    try_task(task)
    graph, alone = capture(task), train_alone_drawing(task)
    trainer, state = train(task, 'abc', shuffled(2, len(graph.layers), task), {'b': (1, 'F1')},
                           every=1, graph=graph, expected=False)
    assert difference(state, alone) < 1e-10
    for number, figures in trainer.commit.figures.items():
        assert figures['samples'] == task.batch
        assert figures['loss'] == pytest.approx(alone.loss[number], rel=1e-10)
        assert figures['norm'] == pytest.approx(alone.norm[number], rel=1e-9)


@pytest.mark.parametrize('part', [
    nn.AlphaDropout(0.2), nn.RReLU(),
    Net(lambda s, x: F.gumbel_softmax(x) + torch.rand(x.shape[0], 1, dtype=x.dtype)),
    Net(lambda s, x: s.r(x[:, None].expand(-1, 5, -1))[0].mean(1),
        r=nn.LSTM(12, 12, 2, dropout=0.3, batch_first=True))])
def test_draws_of_any_kind_depend_on_round_and_grain_alone(part):
    task = task_of(lambda: Net(lambda s, x: s.o(s.part(s.a(x.flatten(1)))), **ends(part=part)))
    graph = capture(task)
    _, alone = train(task, 'a', shuffled(1, len(graph.layers), task), graph=graph)
    _, state = train(task, 'abc', shuffled(2, len(graph.layers), task), {'c': (1, 'B1')}, every=1,
                     graph=graph, expected=False)
    assert all(torch.allclose(state[name], value, rtol=0, atol=1e-12)
               for name, value in alone.items())


def test_a_stage_without_parameters_clips_nothing():
    task = task_of(lambda: nn.Sequential(
        nn.AvgPool2d(2), nn.Tanh(), nn.Flatten(), nn.Linear(16, 10)), clip=1e-3)
    graph, alone = capture(task), train_alone_drawing(task)
    assert not graph.layers[0].parameters
    _, state = train(task, 'ab', lambda devices, before: TrainingPlan(
        (TrainingStage(0, 1, (('a', 2),)), TrainingStage(1, len(graph.layers), (('b', 2),))), 4,
        2), graph=graph)
    assert difference(state, alone) < 1e-10


def test_what_a_fused_optimiser_keeps_lies_as_its_parameter_after_a_loss():
    task = task_of(lambda: channels_last(nn.Sequential(
        nn.Conv2d(1, 4, 3), nn.Tanh(), nn.Conv2d(4, 4, 3), nn.Tanh(), nn.Flatten(),
        nn.Linear(64, 10))),
        optimiser=all_of(torch.optim.AdamW, lr=1e-2, fused=True), rounds=5)
    graph, alone = capture(task), train_alone_drawing(task)
    count = len(graph.layers)

    def plan(devices, before):
        stages = [TrainingStage(0, 2, (('a', 2),)), TrainingStage(2, count, (('b', 2),))] \
            if 'a' in devices else [TrainingStage(0, count, (('b', 2),))]
        return TrainingPlan(tuple(stages), 4, 2)
    _, state = train(task, 'ab', plan, {'a': (3, 'F1')}, every=1, graph=graph)
    assert difference(state, alone) < 1e-10


def test_stages_take_values_however_they_lie_in_memory():
    task = task_of(view_of_channels_last)
    graph, values = capture(task), task.data.take(range(4))[0]
    assert len(graph.layers) == 3
    for k in range(3):
        values = run_pass(graph.stage(k, k + 1), [x.contiguous() for x in values],
                          Pass(0, 0, (0,), (4,)))
    assert torch.allclose(values[0], task.module(*task.data.take(range(4))[0]))


def test_gradients_of_pure_rounding_are_no_reason_to_compute_grains_apart():
    task = task_of(lambda: nn.Sequential(
        nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.Tanh(), nn.Flatten(), nn.Linear(144, 10)))
    assert not capture(task).apart and capture(task_of(samples_that_see_each_other)).apart


def test_losses_that_see_each_other_do_so_in_a_grain():
    def centred(outputs, targets):
        losses = cross_entropy(outputs, targets)
        return losses * losses.detach() / losses.detach().mean()
    task = task_of(lambda: nn.Sequential(nn.Flatten(), nn.Linear(64, 10)), loss=centred)
    graph, alone = capture(task), train_alone_drawing(task)
    _, state = train(task, 'ab', shuffled(2, len(graph.layers), task), graph=graph)
    assert graph.loss_apart and difference(state, alone) < 1e-10


def python_draws():
    return Net(lambda s, x: s.o(s.a(x.flatten(1)) * random.choice([1, 2])), **ends())


def counts():
    def call(s, x):
        s.calls += 1
        return s.o(s.a(x.flatten(1)) / s.calls)
    made = Net(call, **ends())
    made.calls = 0
    return made


def embedding_of_short_vectors():
    return Net(lambda s, x: s.o(s.e((x.flatten(1) > 0).long()).mean(1)),
               e=nn.Embedding(2, 12, max_norm=0.1), o=nn.Linear(12, 10))


def old_weight_norm():
    return nn.Sequential(nn.Flatten(), nn.utils.weight_norm(nn.Linear(64, 10)))


def average_of_all_batches():
    return nn.Sequential(nn.Flatten(), nn.Linear(64, 10), nn.BatchNorm1d(10, momentum=None))


def branches():
    return Net(lambda s, x: s.o(s.a(x.flatten(1)) * (2 if x.shape[0] > 4 else 1)), **ends())


def other_gradients():
    return Net(lambda s, x: s.o(checkpoint(s.b, s.a(x.flatten(1)), use_reentrant=True)),
               **ends(b=nn.Linear(12, 12)))


def complex_parameter():
    made = Net(lambda s, x: s.o((s.a(x.flatten(1)) * s.z).real), **ends())
    made.z = nn.Parameter(torch.ones(12, dtype=torch.complex64))
    return made


def several_outputs():
    return Net(lambda s, x: {'out': s.o(s.a(x.flatten(1))), 'more': None}, **ends())


@pytest.mark.filterwarnings('ignore:.*weight_norm.*')
@pytest.mark.parametrize('make, reason', [
    (python_draws, 'draws at random with Python'), (counts, 'it must not count calls'),
    (embedding_of_short_vectors, 'changes e.weight in the forward pass'),
    (average_of_all_batches, '2 has momentum=None'),
    (old_weight_norm, 'take that of parametrizations'),
    (branches, 'must not depend on how many samples'), (other_gradients, 'use_reentrant=False'),
    (several_outputs, 'it gets what the module returns, a dict')])
def test_modules_that_cannot_be_trained_are_refused_with_what_to_change(make, reason):
    with pytest.raises(TaskError, match=reason):
        task = task_of(make)
        try_task(task)
        capture(task)


class Together(torch.optim.SGD):
    """Steps by the norm of all gradients, as LARS of a whole network would."""

    def step(self, closure=None):
        parameters = [p for group in self.param_groups for p in group['params']]
        norm = sum(float(p.grad.pow(2).sum()) for p in parameters) ** 0.5
        for p in parameters:
            p.grad /= norm
        super().step()


class Counting(torch.optim.SGD):
    """Counts its steps in itself: a device that takes over would begin at 0."""

    steps = 0

    def step(self, closure=None):
        self.steps += 1
        for group in self.param_groups:
            group['lr'] = 0.1 / self.steps
        super().step()


class Lists(torch.optim.SGD):
    def step(self, closure=None):
        super().step()
        for group in self.param_groups:
            for p in group['params']:
                self.state[p]['history'] = [1]


def all_of(kind, **options):
    return lambda named: kind([p for _, p in named], **options)


@pytest.mark.parametrize('optimiser, reason', [
    (all_of(torch.optim.LBFGS), 'steps by gradients alone, such as SGD'),
    (all_of(torch.optim.SparseAdam), 'dense gradients'),
    (all_of(Together, lr=0.1), 'must be stepped on its own'),
    (all_of(Counting, lr=0.1), 'must be stepped on its own'),
    (all_of(Lists, lr=0.1), 'only tensors move'),
    (lambda named: torch.optim.SGD([p for name, p in named if 'weight' in name], lr=0.1),
     'leaves out a.bias'),
    (all_of(torch.optim.Muon), '2D')])
def test_optimisers_that_no_stage_can_have_are_refused(optimiser, reason):
    with pytest.raises(TaskError, match=reason):
        try_task(task_of(lambda: Net(lambda s, x: s.o(s.a(x.flatten(1))), **ends()),
                         optimiser=optimiser))


@pytest.mark.parametrize('optimiser', [
    all_of(torch.optim.SGD, lr=0.1, momentum=0.9, nesterov=True, maximize=True),
    all_of(torch.optim.Adam, lr=torch.tensor(1e-3), amsgrad=True),
    all_of(torch.optim.AdamW, lr=1e-3, fused=True), all_of(torch.optim.RMSprop, centered=True),
    all_of(torch.optim.Adagrad), all_of(torch.optim.Adadelta), all_of(torch.optim.Rprop),
    all_of(torch.optim.NAdam, foreach=True), all_of(torch.optim.RAdam),
    all_of(torch.optim.Adamax), all_of(torch.optim.ASGD), all_of(torch.optim.Adafactor),
    lambda named: torch.optim.AdamW([
        {'params': [dict(named)['o.weight']], 'lr': 1e-2},
        *({'params': [p], 'lr': 1e-3 * 0.8 ** k, 'weight_decay': 0.1 * k}
          for k, (name, p) in enumerate(named) if name != 'o.weight')])])
def test_optimisers_of_torch_move_with_their_state(optimiser):
    """A device is lost: what it kept goes on elsewhere."""
    task = task_of(lambda: Net(lambda s, x: s.o(torch.tanh(s.a(x.flatten(1)))), **ends()),
                   optimiser=optimiser)
    try_task(task)
    graph, alone = capture(task), train_alone_drawing(task)
    _, state = train(task, 'abc', shuffled(2, len(graph.layers), task), {'b': (1, 'F1')}, every=1,
                     graph=graph, expected=False)
    assert difference(state, alone) < 1e-10


@pytest.mark.parametrize('changes, reason', [
    ({'module': nn.Sequential(nn.Flatten(), nn.Linear(64, 10), nn.BatchNorm1d(10)).double(),
      'batch': 13}, '1 sample of the smallest grain'),
    ({'schedule': lambda number: -1.0}, 'factor of 0 or more'),
    ({'schedule': lambda number: random.random()}, 'function of the round alone'),
    ({'loss': lambda o, t, seen=[]: seen.append(1) or cross_entropy(o * len(seen), t)},
     'must not remember'),
    ({'data': TensorData((torch.randn(SAMPLES, 64).double(),), torch.zeros(SAMPLES).long()),
      'loss': lambda o, t: cross_entropy(o, t).mean()}, 'one number a sample')])
def test_tasks_that_would_fail_later_are_refused_at_once(changes, reason):
    with pytest.raises(TaskError, match=reason):
        try_task(task_of(lambda: nn.Sequential(nn.Flatten(), nn.Linear(64, 10)), **changes))


def test_data_of_different_lengths_are_refused():
    with pytest.raises(TaskError, match='have as many rows'):
        TensorData((torch.zeros(5, 2),), torch.zeros(4))


@pytest.mark.filterwarnings('ignore::pytest.PytestUnhandledThreadExceptionWarning')
def test_samples_that_are_not_as_the_first_ones_are_named():
    class Odd(TensorData):
        def take(self, samples):
            inputs, targets = super().take(samples)
            return tuple(x.float() if 33 in samples else x for x in inputs), targets
    task = task_of(lambda: nn.Sequential(nn.Flatten(), nn.Linear(64, 10)), rounds=9)
    assert isinstance(task.data, TensorData)
    task = replace(task, data=Odd(task.data.inputs, task.data.targets))
    graph = capture(task)
    with pytest.raises(TrainingError, match='[^0-9]33[^0-9].*float32.*the first ones'):
        train(task, 'a', shuffled(1, len(graph.layers), task), graph=graph)
