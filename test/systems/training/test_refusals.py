# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""What would silently train otherwise than a plain loop is refused by name."""
from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import nn
from training_fleet import cross_entropy

from intradp_ros.systems.training.base.items import Items
from intradp_ros.systems.training.base.task import TaskError, TensorData, TrainingTask
from intradp_ros.systems.training.layers.layer_capture import capture
from intradp_ros.systems.training.layers.task_trial import try_task

Optimiser = Callable[[Any, Any], torch.optim.Optimizer]


def made(module: nn.Module | None = None, optimiser: Optimiser | None = None) -> TrainingTask:
    net = module or nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 8), nn.Linear(8, 3))
    data = TensorData((torch.randn(32, 6),), torch.arange(32) % 3)
    return TrainingTask(net, cross_entropy, lambda named: optimiser(net, named) if optimiser else
                        torch.optim.SGD([p for _, p in named], lr=0.1), data, 16, 4, 2, 4)


def by_identity(net: Any, named: Any) -> torch.optim.Optimizer:
    head = {id(p) for p in net[3].parameters()}
    return torch.optim.SGD([{'params': [p for _, p in named if id(p) in head], 'lr': 0.5},
                            {'params': [p for _, p in named if id(p) not in head]}], lr=0.1)


def hooked(net: Any, named: Any) -> torch.optim.Optimizer:
    for _, p in named:
        p.register_hook(lambda g: g.clamp(-0.01, 0.01))
    return torch.optim.SGD([p for _, p in named], lr=0.1)


@pytest.mark.parametrize('optimiser, reason', [
    (lambda net, named: torch.optim.SGD(net.parameters(), lr=0.1), r'steps 0\.weight of the mod'),
    (lambda net, named: torch.optim.SGD([
        {'params': [p for name, p in named if name[0] != '3']},
        {'params': net[3].parameters(), 'lr': 0.5}], lr=0.1), r'steps 3\.weight of the module'),
    (by_identity, r'gives 3\.weight other options'), (hooked, r'sets a hook on 0\.weight')])
def test_an_optimiser_must_be_made_of_what_it_is_given(optimiser, reason):
    with pytest.raises(TaskError, match=reason):
        try_task(made(optimiser=optimiser))


def test_groups_that_are_chosen_by_name_are_taken():
    try_task(made(optimiser=lambda net, named: torch.optim.SGD([
        {'params': [p for name, p in named if name.startswith('3')], 'lr': 0.5},
        {'params': [p for name, p in named if not name.startswith('3')]}], lr=0.1)))


class Keeping(torch.optim.SGD):
    def zero_grad(self, set_to_none: bool = False) -> None:
        super().zero_grad(set_to_none=False)


def test_an_optimiser_with_a_zero_grad_of_its_own_is_refused():
    with pytest.raises(TaskError, match=r'Keeping has a zero_grad\(\) of its own'):
        try_task(made(optimiser=lambda net, named: Keeping([p for _, p in named], lr=0.1)))


class Seen:
    """A script's class that keeps its optimiser, and who looks at it."""

    def __init__(self, reader: str) -> None:
        self.net, self.reader = nn.Sequential(nn.Linear(6, 3)), reader
        self.kept: Any = None

    def optimiser(self, named: Any) -> torch.optim.Optimizer:
        groups, rate = [{'params': [p for _, p in named]}], torch.tensor(0.1)
        made = torch.optim.SGD(groups, lr=rate if self.reader == 'tensor' else 0.1)
        self.kept = {'groups': groups, 'tensor': rate}.get(self.reader, made)
        if self.reader == 'copy':
            self.kept = {'lr': 0.1}
            made.register_step_post_hook(
                lambda o, *_: self.kept.update(lr=o.param_groups[0]['lr']))
        return made

    def rate(self) -> Any:
        reads: dict[str, Callable[[Any], Any]] = {
            'groups': lambda kept: kept[0]['lr'], 'tensor': lambda kept: kept,
            'copy': lambda kept: kept['lr']}
        return reads.get(self.reader, lambda kept: kept.param_groups[0]['lr'])(self.kept)

    def loss(self, outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        return cross_entropy(outputs, targets) + self.rate() * outputs.pow(2).mean(1)

    def augment(self, item: Any, generator: torch.Generator) -> Any:
        return item[0] * (1 + (self.rate() if self.kept else 0.0)), item[1]

    def task(self) -> TrainingTask:
        rows = [(x, k % 3) for k, x in enumerate(torch.randn(32, 6))]
        data = Items(rows, augment=self.augment if self.reader == 'augment' else None)
        if self.reader == 'hook':
            self.net[0].bias.register_hook(lambda g: g * (self.rate() if self.kept else 1.0))
        if self.reader == 'module':
            self.net[0].register_forward_hook(
                lambda m, x, y: y * (self.rate() if self.kept else 1.0))
        loss = cross_entropy if self.reader in ('hook', 'augment', 'module') else self.loss
        return TrainingTask(self.net, loss, self.optimiser, data, 16, 4, 2, 4,
                            schedule=lambda number: 0.5 ** number)


@pytest.mark.parametrize('reader, reason', [
    ('loss', r'loss.* leads to what the optimiser function made.*a buffer that counts'),
    ('groups', r'loss.*\.kept.* leads'), ('tensor', r'loss.*\.kept leads'),
    ('copy', r'a hook on its step, changes .*\.kept'),
    ('hook', r'hooks.* leads'), ('augment', r'data\.augment.* leads'),
    ('module', 'module.* leads')])
def test_who_else_can_see_the_optimiser_is_refused(reader: str, reason: str) -> None:
    with pytest.raises(TaskError, match=reason):
        try_task(Seen(reader).task())


@pytest.mark.parametrize('change', [
    lambda net, number: net[0].requires_grad_(number > 2), lambda net, number: net[2].eval(),
    lambda net, number: net[2].train(number < 3), lambda net, number: net[2].eval() if number > 2
    else net, lambda net, number: setattr(net[0], 'alpha', 1.0) or net if number > 2 else net])
def test_a_schedule_that_freezes_or_unfreezes_is_refused(change: Any) -> None:
    net = nn.Sequential(nn.Linear(6, 8), nn.Linear(8, 3), nn.BatchNorm1d(3))
    task = replace(made(net), schedule=lambda number: float(change(net, number) is not None))
    with pytest.raises(TaskError, match=r'schedule changes .*self\.n \+= 1 in forward'):
        try_task(task)


@pytest.mark.parametrize('dtype', [torch.float16, torch.bfloat16])
def test_weights_of_16_bits_are_not_trained(dtype: torch.dtype) -> None:
    net = nn.Sequential(nn.Linear(6, 8), nn.Linear(8, 3).to(dtype))
    net[0].register_forward_hook(lambda m, x, y: y.to(dtype))
    with pytest.raises(TaskError, match=r'1\.weight is to be trained in .*float16.*autocast='):
        try_task(made(net))
    net[1].requires_grad_(False)
    try_task(made(net))


class WithoutGradients(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.body, self.head = nn.Linear(6, 8), nn.Linear(8, 3)

    def train(self, mode: bool = True) -> WithoutGradients:
        self.body.requires_grad_(False)
        super().train(mode)
        return self

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = self.head(torch.relu(self.body(x)))
        return out


class Frozen(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8))
        self.head = nn.Linear(8, 3)

    def train(self, mode: bool = True) -> Frozen:
        super().train(mode)
        self.body[1].eval()
        return self

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = self.head(torch.relu(self.body(x)))
        return out


def test_a_module_whose_train_freezes_parts_must_be_put_in_training_before():
    with pytest.raises(TaskError, match=r'Frozen has a train\(\) .*freezes body\.1'):
        try_task(made(Frozen()))
    try_task(made(Frozen().train()))
    with pytest.raises(TaskError, match=r'WithoutGradients has a train\(\) .*freezes body'):
        try_task(made(WithoutGradients()))
    try_task(made(WithoutGradients().train()))


@pytest.mark.parametrize('changes, reason', [
    ({'batch': '16'}, "batch is '16', a str: give a whole number"),
    ({'rounds': 4.0}, r'rounds is 4\.0, a float: give a whole number'),
    ({'clip': '1'}, "clip is '1', a str: give a number"),
    ({'schedule': 0.5}, 'schedule is a float, not a function: write one from the round'),
    ({'autocast': 'bfloat16'}, r'give torch\.bfloat16'),
    ({'best_by': 'f1'}, "^best_by is loss or accuracy, not 'f1'$"),
    ({'patience': 0}, '^patience is 1 or more validations'),
    ({'loss': nn.CrossEntropyLoss}, r"is the class .*: give .*CrossEntropyLoss\(reduction='none'"),
    ({'module': nn.Linear}, 'module is the class Linear: give an object of it'),
    ({'loss': lambda outputs: outputs.sum(1)},
     r'2 were given: it gets .* \(4, 3\) float32, and targets \(4,\) int64'),
    ({'module': nn.Linear(5, 3)}, r'cannot be multiplied .*: it gets \[0\] \(4, 6\) float32'),
    ({'validate_every': 1, 'check': TensorData((torch.randn(9, 7),), torch.arange(9) % 3)},
     r'the module with samples of check fails: .*it gets \[0\] \(8, 7\) float32'),
    ({'validate_every': 1, 'check': TensorData((torch.randn(9, 6),), torch.randn(9))},
     'loss with samples of check fails: '),
    ({'data': lambda: TensorData(torch.randn(9, 6), torch.arange(9))},
     r'inputs are a Tensor: give a tuple .*TensorData\(\(inputs,\), targets\)'),
    ({'data': lambda: TensorData((torch.randn(9, 6).numpy(),), torch.arange(9))},
     r'a ndarray among them: give tensors, by torch\.from_numpy')])
def test_what_is_wrong_is_said_with_the_cause_and_the_change(changes: dict[str, Any],
                                                             reason: str) -> None:
    with pytest.raises(TaskError, match=reason):
        data = changes.get('data')
        try_task(replace(made(), **{**changes, **({'data': data()} if data else {})}))


class Branching(nn.Module):
    def __init__(self, numpy: bool) -> None:
        super().__init__()
        self.head, self.numpy = nn.Linear(6, 3), numpy

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = self.head(x)
        if self.numpy:
            return torch.from_numpy(out.detach().numpy())
        return out if x.sum() > 0 else -out


class Halves(nn.Module):
    """Samples in one row, and halves of it again; or what is packed."""

    def __init__(self, packed: bool) -> None:
        super().__init__()
        self.head, self.packed, self.steps = nn.Linear(6, 3), packed, nn.GRU(1, 3)

    def forward(self, x: torch.Tensor) -> Any:
        if self.packed:
            return self.steps(nn.utils.rnn.pack_padded_sequence(
                x.T[..., None], 1 + x[:, 0].long().abs(), enforce_sorted=False))[1][0]
        return torch.cat([self.head(x), self.head(2 * x)]).chunk(2)[0]


@pytest.mark.parametrize('packed, change', [(False, r'z\[:n\], not chunk'), (True, 'gather')])
def test_what_fixes_the_number_of_samples_is_refused_with_what_to_write(packed: bool,
                                                                        change: str) -> None:
    with pytest.raises(TaskError, match=change):
        capture(made(Halves(packed)))


def test_what_cannot_be_exported_is_named_by_its_line(capfd: pytest.CaptureFixture[str]) -> None:
    for numpy, change in ((False, 'take torch.where'), (True, 'compute with torch')):
        with pytest.raises(TaskError, match=rf'\(test_refusals\.py, line \d+\) .*{change}'):
            capture(made(Branching(numpy)))
    assert 'symbolic_shapes' not in capfd.readouterr().err


class Odd(nn.Module):
    """A linear layer, and what `last` makes of its result."""

    def __init__(self, last: Callable[[torch.Tensor], Any] | None = None, **more: Any) -> None:
        super().__init__()
        self.a, self.last = nn.Linear(6, 3, **more), last

    def forward(self, x: torch.Tensor) -> Any:
        return self.last(self.a(x)) if self.last else self.a(x)


class Shifting(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x -= 0.5
        return x


class Attending(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.all = nn.Transformer(6, 2, 1, 1, 8, 0.0, batch_first=True)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        mask = nn.Transformer.generate_square_subsequent_mask(1)
        made: torch.Tensor = self.all(x[:, None], x[:, None], tgt_mask=mask)
        return made[:, 0]


class Clamped(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.w = nn.Parameter(torch.randn(3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.w.data.clamp_(-0.3, 0.3)
        return x * self.w


def _masked() -> Odd:
    model = Odd()
    model.register_buffer('mask', torch.eye(3).to_sparse())
    return model


@pytest.mark.parametrize('module, reason', [
    (lambda: Odd(device='meta'), 'a.weight has no values .*load the weights'),
    (_masked, 'mask is sparse .*to_dense'),
    (lambda: nn.Sequential(Shifting(), nn.Linear(6, 3)), r'writes to its inputs .*x = x - 0\.5'),
    (lambda: nn.Sequential(Attending(), nn.Linear(6, 3)), r'tgt_is_causal'),
    (lambda: Odd(lambda y: torch.fake_quantize_per_tensor_affine(y, 0.1, 0, -8, 7)),
     'PyTorch exports no such operator'),
    (lambda: nn.Sequential(nn.Linear(6, 3), Clamped()), r'write to no weight .*\.data'),
    (lambda: Odd(lambda y: torch.cdist(y, y[:1] * 0 + torch.ones(9, 3))[:, :3]),
     'compute_mode='),
    (lambda: Odd(lambda y: (row for row in y)), 'returns a generator without tensors'),
    (lambda: Odd(torch.func.grad(lambda y: y.sin().sum())),
     r'it calls torch.func or vmap at test_refusals.py:\d+.*torch.einsum')])
def test_what_users_write_is_refused_in_their_words(module: Callable[[], nn.Module],
                                                    reason: str) -> None:
    task = made(module())
    with pytest.raises(TaskError, match=reason):
        try_task(task)
        capture(task)
