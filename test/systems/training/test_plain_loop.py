# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""What people write in tasks: trained as their own loop would, or refused by name."""
from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
import random
from typing import Any

import pytest
import torch
from torch import nn
import torch.nn.functional as F  # noqa: N812
from torch.nn.utils import parametrizations
from training_fleet import cross_entropy, shuffled, train
from training_models import plain_loop

from intradp_ros.systems.training.base.task import TaskError, TensorData, TrainingTask
from intradp_ros.systems.training.layers.checkpoint import whole_state
from intradp_ros.systems.training.layers.layer_capture import capture
from intradp_ros.systems.training.layers.layer_graph import LayerGraph
from intradp_ros.systems.training.layers.round_trial import Trial, try_rounds
from intradp_ros.systems.training.layers.task_trial import try_task
from intradp_ros.systems.training.service.trainer import TrainingError

SAMPLES = 40
Call = Callable[..., Any]


class Net(nn.Module):
    def __init__(self, call: Call, **parts: nn.Module) -> None:
        super().__init__()
        self.call, self.a, self.o = call, nn.Linear(6, 8), nn.Linear(8, 4)
        for name, part in parts.items():
            setattr(self, name, part)

    def forward(self, *inputs: Any) -> Any:
        return self.call(self, *inputs)


def usual(net: Any, x: torch.Tensor) -> torch.Tensor:
    found: torch.Tensor = net.o(torch.tanh(net.a(x)))
    return found


def network(call: Call = usual, **parts: nn.Module) -> Any:
    return Net(call, **parts).double()


def sgd(named: Any) -> torch.optim.Optimizer:
    return torch.optim.SGD([p for _, p in named], lr=0.05, momentum=0.9, weight_decay=1e-2)


def task_of(module: nn.Module, loss: Call = cross_entropy, optimiser: Call = sgd,
            **changes: Any) -> TrainingTask:
    data = changes.pop('data', None) or TensorData(
        (torch.randn(SAMPLES, 6).double(),), torch.randint(0, 4, (SAMPLES,)))
    return TrainingTask(module, loss, optimiser, data, **(
        {'batch': 14, 'grain': 4, 'micro_batches': 2, 'rounds': 4} | changes))


def made(make: Callable[[], TrainingTask]) -> TrainingTask:
    torch.manual_seed(9)
    return make()


def tried(task: TrainingTask) -> tuple[LayerGraph, Trial]:
    try_task(task)
    graph = capture(task)
    return graph, try_rounds(task, graph)


def trained(task: TrainingTask, graph: LayerGraph, devices: str = 'abc',
            seed: int = 2) -> dict[str, torch.Tensor]:
    _, state = train(task, devices, shuffled(seed, len(graph.layers), task), graph=graph)
    return whole_state(task, state)


def apart(one: dict[str, torch.Tensor], module: nn.Module) -> float:
    """Return the largest difference of a parameter or buffer; each of them must be there."""
    wanted = {f'p:{name}': p.detach() for name, p in module.named_parameters()}
    wanted |= {f'b:{name}': b for name, b in module.named_buffers()}
    return max(float((one[name].double() - value.double()).abs().max())
               for name, value in wanted.items() if value.numel())


def hooked() -> TrainingTask:
    """Hooks scale, clip, freeze rows and give noise its limits; the norm is that after them."""
    net = network()
    mask = torch.ones(8, 1).double()
    mask[:3] = 0
    net.a.weight.register_hook(lambda g: g * mask)
    net.a.bias.register_hook(lambda g: g.clamp(-1e-2, 1e-2))
    net.a.bias.register_hook(lambda g: g * 2)

    def halve(p: torch.Tensor) -> None:
        assert p.grad is not None
        p.grad.mul_(0.5)
    net.o.weight.register_post_accumulate_grad_hook(halve)
    return task_of(net, clip=0.05)


def called(net: Any, x: torch.Tensor) -> torch.Tensor:
    net.calls += 1
    net.unread += 1
    return usual(net, x) * torch.where(net.calls > 2, 2.0, 1.0)


def counting() -> TrainingTask:
    net = network(called)
    for name in ('calls', 'unread'):
        net.register_buffer(name, torch.zeros((), dtype=torch.long))
    return task_of(net)


def spectral() -> TrainingTask:
    net = network()
    parametrizations.spectral_norm(net.a)
    parametrizations.spectral_norm(net.o, n_power_iterations=2)
    return task_of(net)


def averaged(net: Any, x: torch.Tensor) -> torch.Tensor:
    with torch.no_grad():
        net.mean.mul_(0.9).add_(net.a.weight.detach(), alpha=0.1)
    return usual(net, x)


def average_of_weights() -> TrainingTask:
    net = network(averaged)
    net.register_buffer('mean', net.a.weight.detach().clone())
    return task_of(net)


def positives() -> TrainingTask:
    """Return a task of data in folders by class: rounds have no positives, or some."""
    def loss(found: Any, targets: Any) -> torch.Tensor:
        losses, there = cross_entropy(found['cls'], targets), targets > 2
        if there.any():
            losses = losses.index_add(0, there.nonzero()[:, 0], found['box'][there].pow(2).mean(1))
        return losses

    def call(net: Any, x: torch.Tensor) -> Any:
        h = torch.tanh(net.a(x))
        return {'cls': net.o(h), 'box': net.box(torch.tanh(net.neck(h)))}
    net = network(call, neck=nn.Linear(8, 8), box=nn.Linear(8, 3))
    return task_of(net, loss, data=TensorData(
        (torch.randn(SAMPLES, 6).double(),), torch.arange(SAMPLES) // 36 * 3), rounds=6, batch=5,
        grain=2)


def learned_weight_of_the_loss() -> TrainingTask:
    def call(net: Any, x: torch.Tensor) -> Any:
        return usual(net, x), net.w.expand(x.shape[0], 1)

    def loss(found: Any, targets: torch.Tensor) -> torch.Tensor:
        return cross_entropy(found[0], targets) * torch.exp(-found[1][:, 0]) + found[1][:, 0]
    net = network(call)
    net.w = nn.Parameter(torch.zeros(1).double())
    return task_of(net, loss)


def options_by_place_and_name() -> TrainingTask:
    def optimiser(named: Any) -> torch.optim.Optimizer:
        by_name = dict(named)
        return torch.optim.AdamW(
            [{'params': [by_name['o.weight'], by_name['o.bias']], 'lr': 1e-2},
             *({'params': [p], 'lr': 1e-3 * 0.8 ** k} for k, (name, p) in enumerate(named)
               if name[0] == 'a')])
    return task_of(network(), optimiser=optimiser)


def frozen_group() -> TrainingTask:
    """Parameters that are frozen count where others are numbered."""
    net = network()
    net.a.requires_grad_(False)
    return task_of(net, optimiser=lambda named: torch.optim.SGD(
        [{'params': [p], 'lr': 0.2 * 0.5 ** k} for k, (_, p) in enumerate(named)], lr=0.1))


def clipped_values() -> TrainingTask:
    def optimiser(named: Any) -> torch.optim.Optimizer:
        found = sgd(named)

        def before(*_: Any) -> None:
            for group in found.param_groups:
                torch.nn.utils.clip_grad_value_(group['params'], 1e-2)
        found.register_step_pre_hook(before)
        return found
    return task_of(network(), optimiser=optimiser)


def hooks_of_modules() -> TrainingTask:
    net = network()
    net.a.register_forward_hook(lambda m, given, out: out * 0.5)
    net.register_forward_hook(lambda m, given, out: out * 3)
    net.register_forward_pre_hook(lambda m, given: (given[0] * 0.5,))
    return task_of(net)


def branches() -> TrainingTask:
    """One is detached, one is not used, and one goes through `no_grad`."""
    def call(net: Any, x: torch.Tensor) -> Any:
        net.last = net.a(x)  # kept for whoever looks
        with torch.no_grad():
            early = torch.tanh(net.early(x))
        return net.o(torch.tanh(net.last)), net.b(net.last.detach()), net.c(net.last), early
    return task_of(network(call, b=nn.Linear(8, 4), c=nn.Linear(8, 4), early=nn.Linear(6, 4)),
                   lambda found, t: cross_entropy(found[0] + found[3], t)
                   + cross_entropy(found[1], t))


def draws_in_place() -> TrainingTask:
    """Draw where it does not matter; that it is exported does, with defaults too."""
    def call(net: Any, x: torch.Tensor) -> torch.Tensor:
        rows = x.new_empty(x.shape[0], 1)
        drawn = rows.bernoulli_(0.5) + rows.clone().bernoulli_() + rows.clone().normal_()
        like = torch.distributions.Normal(x, x.abs() + 1.0).rsample()
        return usual(net, x + 0.0 * drawn + 0.0 * like)
    return task_of(network(call))


def losses_that_write_and_differentiate() -> TrainingTask:
    def loss(found: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        found.sub_(found.detach().mean(1, keepdim=True))
        losses = cross_entropy(found, targets)
        slope, = torch.autograd.grad(losses.sum(), found, create_graph=True)
        return losses + slope.pow(2).sum(1)
    return task_of(network(), loss)


EQUAL = [hooked, counting, spectral, average_of_weights, positives, learned_weight_of_the_loss,
         options_by_place_and_name, frozen_group, clipped_values, hooks_of_modules, branches,
         draws_in_place, losses_that_write_and_differentiate]


@pytest.mark.parametrize('make', EQUAL)
def test_it_is_trained_as_in_a_plain_loop(make: Callable[[], TrainingTask]) -> None:
    """On several devices and on one; norms and losses, too."""
    task, alone = made(make), plain_loop(made(make))
    graph, _ = tried(task)
    trainer, state = train(task, 'abc', shuffled(2, len(graph.layers), task), graph=graph)
    assert apart(whole_state(task, state), alone.module) < 1e-10
    for number, figures in trainer.commit.figures.items():
        assert figures['loss'] == pytest.approx(alone.loss[number], rel=1e-10)
        assert figures['norm'] == pytest.approx(alone.norm[number], rel=1e-9)
    assert apart(trained(task, graph, 'a', 0), alone.module) < 1e-10


def test_what_takes_part_is_said() -> None:
    _, trial = tried(made(frozen_group))
    assert trial.frozen == ('a.weight', 'a.bias') and not trial.unreached
    graph, trial = tried(made(branches))
    assert trial.unreached == ('c.weight', 'c.bias', 'early.weight', 'early.bias')
    assert not graph.by_grain and not graph.loss_by_grain
    _, trial = tried(made(hooked))
    assert trial.hooked == ('a.weight', 'a.bias', 'o.weight')


def test_a_head_that_only_one_sample_in_forty_reaches_is_trained() -> None:
    """What no sample reached when the task was tried is not frozen."""
    def loss(found: Any, targets: torch.Tensor) -> torch.Tensor:
        losses = cross_entropy(found[0], targets[:, 0])
        return losses + found[1][:, 0] if (targets[:, 1] == 7).any() else losses

    def make() -> TrainingTask:
        targets = torch.zeros(SAMPLES, 2, dtype=torch.long)
        targets[7, 1] = 7
        return task_of(network(lambda net, x: (usual(net, x), net.rare(x)),
                               rare=nn.Linear(6, 1)), loss, rounds=9,
                       data=TensorData((torch.randn(SAMPLES, 6).double(),), targets))
    task = made(make)
    graph, trial = tried(task)
    assert trial.unreached == ('rare.weight', 'rare.bias')
    state, first = trained(task, graph), task.module.get_parameter('rare.weight')
    assert not torch.equal(state['p:rare.weight'], first.detach())


def mixing(found: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """Losses of positives, divided by how many of them the batch has; before, there are none."""
    there = targets > 0
    return cross_entropy(found, targets) * there / there.sum().clamp(min=1)


def drawing(found: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    return cross_entropy(found + 0.1 * torch.randn_like(found), targets) * random.random()


def writing(found: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """Ignored targets are written over, in a loss that looks at all of them."""
    there = targets > 1
    targets[~there] = 0
    return cross_entropy(found, targets) * there / there.sum().clamp(min=1)


@pytest.mark.parametrize('loss', [mixing, drawing, writing])
def test_a_loss_that_mixes_samples_or_draws_does_not_depend_on_the_plan(loss: Call) -> None:
    """Its first samples are all alike."""
    data = TensorData((torch.randn(SAMPLES, 6).double(),), torch.arange(SAMPLES) // 20)
    task = task_of(network(), loss, data=data)
    graph, _ = tried(task)
    assert graph.loss_by_grain
    first, *others = (trained(task, graph, devices, seed)
                      for devices, seed in (('a', 0), ('abc', 2), ('ab', 5)))
    for other in others:
        assert max(float((other[name] - value).abs().max())
                   for name, value in first.items()) < 1e-10


@pytest.mark.filterwarnings('ignore::pytest.PytestUnhandledThreadExceptionWarning')
def test_a_loss_that_reads_a_weight_now_and_then_is_refused_when_it_does() -> None:
    net = network()

    def loss(found: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        losses = cross_entropy(found, targets[:, 0])
        return losses + net.a.weight.detach().abs().sum() if targets[:, 1].any() else losses
    data = TensorData((torch.randn(SAMPLES, 6).double(),), torch.zeros(SAMPLES, 2).long())
    task = task_of(net, loss, data=data)
    graph, _ = tried(task)
    changed = replace(task, data=TensorData(data.inputs, torch.ones(SAMPLES, 2).long()))
    with pytest.raises(TrainingError, match='the loss reads a.weight of the module by itself'):
        train(changed, 'a', shuffled(1, len(graph.layers), task), graph=graph)


def refused(reason: str) -> Callable[[Callable[[], TrainingTask]], Any]:
    def mark(make: Callable[[], TrainingTask]) -> Any:
        REFUSED.append(pytest.param(make, reason, id=make.__name__))
        return make
    return mark


REFUSED: list[Any] = []


def with_hook(hook: Call, of: str = 'a.weight') -> TrainingTask:
    net = network()
    net.get_parameter(of).register_hook(lambda g: hook(net, g))
    return task_of(net)


@refused('a hook of a.weight changes .*calls.*must not remember')
def hook_that_counts() -> TrainingTask:
    calls = [0]

    def hook(net: nn.Module, g: torch.Tensor) -> torch.Tensor:
        calls[0] += 1
        return g * (calls[0] > 100)
    return with_hook(hook)


@refused('a hook of a.weight reads o.weight')
def hook_that_reads() -> TrainingTask:
    return with_hook(lambda net, g: g * net.o.weight.detach().abs().mean())


@refused('the loss reads a.weight .*a row for each sample')
def penalty_in_the_loss() -> TrainingTask:
    net = network()
    return task_of(net, lambda o, t: cross_entropy(o, t) + 1e-2 * net.a.weight.abs().sum())


@refused('the loss reads a.bias')
def number_of_a_weight_in_the_loss() -> TrainingTask:
    net = network()
    return task_of(net, lambda o, t: cross_entropy(o, t) * (1 + net.a.bias.data.tolist()[0]))


@refused('steps a parameter of the shape .1,. that it is not given')
def parameter_of_the_optimiser() -> TrainingTask:
    w = nn.Parameter(torch.zeros(1).double())
    return task_of(network(), lambda o, t: cross_entropy(o, t) * torch.exp(-w) + w,
                   lambda named: torch.optim.SGD([*(p for _, p in named), w], lr=0.1))


@refused('module.calls changes with each pass.*must not count calls')
def calls_in_python() -> TrainingTask:
    def call(net: Any, x: torch.Tensor) -> torch.Tensor:
        net.calls += 1
        return usual(net, x) * (2 if net.calls > 200 else 1)
    net = network(call)
    net.calls = 0
    return task_of(net)


@refused('assigns calls in the forward pass and reads what it was before')
def calls_in_a_tensor_that_is_no_buffer() -> TrainingTask:
    def call(net: Any, x: torch.Tensor) -> torch.Tensor:
        net.calls = net.calls + 1
        return usual(net, x) * torch.where(net.calls > 200, 2.0, 1.0)
    net = network(call)
    net.calls = torch.zeros(())
    return task_of(net)


@refused('loss.mean.0. changes with each pass')
def loss_that_remembers() -> TrainingTask:
    mean = [0.0]

    def loss(found: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        losses = cross_entropy(found, targets)
        mean[0] = 0.9 * mean[0] + 0.1 * float(losses.detach().mean())
        return losses / (mean[0] if mean[0] > 1e6 else 1)
    return task_of(network(), loss)


@refused('seen.* changes with each pass')
def features_by_a_hook() -> TrainingTask:
    net, seen = network(), dict[str, torch.Tensor]()
    net.a.register_forward_hook(lambda m, given, out: seen.update(a=out))
    return task_of(net, lambda o, t: cross_entropy(o, t) + 1e-2 * seen['a'].pow(2).mean(1))


@refused('seen.* changes with each pass')
def average_in_a_hook() -> TrainingTask:
    net = network()
    seen = {name: p.detach().clone() for name, p in net.named_parameters()}

    def hook(module: nn.Module, given: Any) -> None:
        for name, p in module.named_parameters():
            seen[name].mul_(0.9).add_(p.detach(), alpha=0.1)
    net.register_forward_pre_hook(hook)
    return task_of(net)


def with_step_hook(hook: Call) -> TrainingTask:
    net = network()

    def optimiser(named: Any) -> torch.optim.Optimizer:
        found = sgd(named)

        def before(*_: Any) -> None:
            hook(found, net)
        found.register_step_pre_hook(before)
        return found
    return task_of(net, optimiser=optimiser)


@refused('a hook on its step, reads a.weight')
def average_in_a_hook_of_the_step() -> TrainingTask:
    means: list[torch.Tensor] = []
    return with_step_hook(lambda found, net: means.append(net.a.weight.detach().clone()))


@refused('by what comes of .* give the task clip=')
def norm_of_all_gradients() -> TrainingTask:
    return with_step_hook(lambda found, net: torch.nn.utils.clip_grad_norm_(
        [p for group in found.param_groups for p in group['params']], 1e6))


@refused('changes lr of its groups .* given as schedule=')
def schedule_in_a_hook_of_the_step() -> TrainingTask:
    def optimiser(named: Any) -> torch.optim.Optimizer:
        found = sgd(named)
        schedule = torch.optim.lr_scheduler.StepLR(found, 2)
        found.register_step_post_hook(lambda *_: schedule.step())
        return found
    return task_of(network(), optimiser=optimiser)


@refused('changes lr of its groups .* given as schedule=')
def schedule_of_each_group() -> TrainingTask:
    """Rates change after the steps that are tried, and each group has a function of its own."""
    def optimiser(named: Any) -> torch.optim.Optimizer:
        found = torch.optim.SGD([{'params': [p for _, p in named if p.dim() > 1]},
                                 {'params': [p for _, p in named if p.dim() <= 1]}], lr=0.1)
        schedule = torch.optim.lr_scheduler.LambdaLR(
            found, [lambda k: float(k >= 6), lambda k: 1.0])
        found.register_step_post_hook(lambda *_: schedule.step())
        return found
    return task_of(network(), optimiser=optimiser)


@refused("changes optimiser.'steps'. with each step")
def optimiser_that_counts() -> TrainingTask:
    class Counting(torch.optim.SGD):
        steps = 0

        def step(self, closure: Any = None) -> None:  # type: ignore[override]
            self.steps += 1
            if self.steps < 100:
                super().step()
    return task_of(network(), optimiser=lambda named: Counting([p for _, p in named], lr=0.1))


@refused('goes back by Limited, an autograd function of its own')
def function_of_its_own() -> TrainingTask:
    class Limited(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
            return x.clone()

        @staticmethod
        def backward(ctx: Any, g: torch.Tensor) -> torch.Tensor:  # type: ignore[override]
            return g.clamp(-1e3, 1e3)
    return task_of(network(lambda net, x: net.o(Limited.apply(torch.tanh(net.a(x))))))


@refused('sets hooks on tensors')
def hook_on_a_tensor() -> TrainingTask:
    def call(net: Any, x: torch.Tensor) -> Any:
        h = torch.tanh(net.a(x))
        if h.requires_grad:
            h.register_hook(lambda g: g.clamp(-1e3, 1e3))
        return net.o(h)
    return task_of(network(call))


@refused('a is one with hooks on its way back')
def backward_hook() -> TrainingTask:
    net = network()
    net.a.register_full_backward_hook(lambda *given: None)
    return task_of(net)


@refused('a is compiled by torch.compile')
def compiled() -> TrainingTask:
    net = network()
    net.a = torch.compile(net.a)
    return task_of(net)


@refused('state_dict of the module has scaled')
def hook_of_the_state() -> TrainingTask:
    net = network()
    net.register_state_dict_post_hook(
        lambda module, state, *_: state.update(scaled=module.a.weight * 2))
    return task_of(net)


@refused('changes a.weight in the forward pass, which is a parameter')
def weights_clamped_in_the_pass() -> TrainingTask:
    def call(net: Any, x: torch.Tensor) -> torch.Tensor:
        with torch.no_grad():
            net.a.weight.clamp_(-5, 5)
        return usual(net, x)
    return task_of(network(call))


@refused('changes its buffer mean in the forward pass by what it makes of samples')
def average_of_samples() -> TrainingTask:
    def call(net: Any, x: torch.Tensor) -> torch.Tensor:
        h = net.a(x)
        with torch.no_grad():
            net.mean.mul_(0.9).add_(h.detach().mean(0), alpha=0.1)
        return net.o(torch.tanh(h - net.mean))  # type: ignore[no-any-return]
    net = network(call)
    net.register_buffer('mean', torch.zeros(8).double())
    return task_of(net)


@refused('writes to a view of a value')
def view_that_is_written_to() -> TrainingTask:
    def call(net: Any, x: torch.Tensor) -> torch.Tensor:
        h = net.a(x)
        h[:, :4].mul_(2.0)
        return net.o(torch.tanh(h))  # type: ignore[no-any-return]
    return task_of(network(call))


@refused('writes to a part of counts')
def part_of_a_buffer_that_is_written_to() -> TrainingTask:
    def call(net: Any, x: torch.Tensor) -> torch.Tensor:
        net.counts[0] += 1
        return usual(net, x)
    net = network(call)
    net.register_buffer('counts', torch.zeros(3))
    return task_of(net)


@refused('reads teacher.weight of the .* is a buffer that the forward pass changes')
def teacher_that_a_hook_of_the_step_makes_follow() -> TrainingTask:
    net = network(lambda net, x: usual(net, x) + net.teacher(x).detach())
    net.teacher = nn.Linear(6, 4).double().requires_grad_(False)

    def optimiser(named: Any) -> torch.optim.Optimizer:
        found, by_name = sgd(named), dict(named)

        def follow(*_: Any) -> None:
            with torch.no_grad():
                by_name['teacher.weight'].mul_(0.9)
        found.register_step_post_hook(follow)
        return found
    return task_of(net, optimiser=optimiser)


@refused('the loss goes back itself')
def loss_that_goes_back() -> TrainingTask:
    def loss(found: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        F.cross_entropy(found, targets).backward(retain_graph=True)
        return cross_entropy(found, targets)
    return task_of(network(), loss)


@refused('the loss of sample 33 is .*nan')
def sample_without_a_loss() -> TrainingTask:
    inputs = torch.randn(SAMPLES, 6).double()
    inputs[33] = float('nan')
    return task_of(network(), data=TensorData(
        (inputs,), torch.randint(0, 4, (SAMPLES,))))


@refused('depends on no parameter .* for none of 24 samples')
def loss_that_reaches_nothing() -> TrainingTask:
    return task_of(network(), lambda o, t: cross_entropy(o.detach(), t))


@pytest.mark.parametrize('make, reason', REFUSED)
def test_it_is_refused_by_name(make: Callable[[], TrainingTask], reason: str) -> None:
    with pytest.raises(TaskError, match=reason):
        tried(made(make))


class Copied(nn.Module):
    """One with a factor that copies lose, or that is an attribute of a parameter."""

    def __init__(self, factor: float = 1.0) -> None:
        super().__init__()
        self.a, self.factor = nn.Linear(6, 4), factor

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y: torch.Tensor = self.a(x)
        return y * self.factor * getattr(self.a.weight, 'factor', 1.0)


class Dropping(Copied):
    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), 'factor': 1.0}


@pytest.mark.parametrize('where', ['parameter', 'module'])
def test_what_copies_lose_is_refused(where: str) -> None:
    module = (Copied() if where == 'parameter' else Dropping(3.0)).double()
    if where == 'parameter':
        vars(module.a.weight)['factor'] = 3.0
    cause = 'does not return what' if where == 'parameter' else 'a copy of Dropping'
    with pytest.raises(TaskError, match=cause):
        capture(task_of(module))
    assert module.factor == (1.0 if where == 'parameter' else 3.0) and module.training


class Beginning(Copied):
    """One that begins with a hook at its first call, as models of transformers do."""

    begun = False

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if not self.begun:
            self.begun = True
            self.a.register_forward_hook(lambda part, given, made: made * 2)
        return super().forward(x)


@pytest.mark.parametrize('checked', [False, True])
def test_a_module_that_is_tried_is_left_without_hooks_of_its_first_call(checked: bool) -> None:
    module = Beginning().double()
    task = task_of(module)
    graph = capture(task, checked)
    assert not module.begun and not module.a._forward_hooks
    x = torch.randn(3, 6).double()
    assert torch.equal(graph.root(x)[0], module(x))
