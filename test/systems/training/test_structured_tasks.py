# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""Modules, losses and data that have several tensors: trained as one process trains them."""
from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import pytest
import torch
from torch import nn
import torch.nn.functional as F  # noqa: N812
from training_fleet import cross_entropy, difference, shuffled, train
from training_models import train_alone_drawing

from intradp_ros.core.torchvision_import import torchvision
from intradp_ros.systems.training.base.items import Items, ItemsHere
from intradp_ros.systems.training.base.task import TaskError, TensorData, TrainingTask
from intradp_ros.systems.training.layers.judgement import judge
from intradp_ros.systems.training.layers.layer_capture import capture
from intradp_ros.systems.training.layers.round_trial import try_rounds
from intradp_ros.systems.training.layers.task_trial import try_task

SAMPLES = 40


class Net(nn.Module):
    """Two blocks with a norm; early values come out of the first."""

    def __init__(self, call: Callable[..., Any]) -> None:
        super().__init__()
        self.call = call
        self.first, self.second = nn.Linear(12, 16), nn.Linear(16, 16)
        self.norm, self.out, self.early = nn.BatchNorm1d(16), nn.Linear(16, 10), nn.Linear(16, 10)
        self.unused = nn.Linear(16, 3)

    def forward(self, *given: Any, **named: Any) -> Any:
        return self.call(self, *given, **named)

    def both(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        early = self.norm(torch.tanh(self.first(x)))
        return self.out(torch.tanh(self.second(early))), self.early(early), early


@dataclass
class Found:
    logits: torch.Tensor
    states: tuple[torch.Tensor, ...]
    loss: torch.Tensor | None = None


class Pair(NamedTuple):
    last: torch.Tensor
    early: torch.Tensor


def as_dict(net: Net, x: torch.Tensor) -> dict[str, Any]:
    last, early, inner = net.both(x)
    return {'out': last, 'more': [early, {'state': inner, 'again': last}], 'given': x,
            'loss': None, 'size': 16, 'never': net.unused(inner)}


def loss_of_dict(found: Any, targets: torch.Tensor) -> torch.Tensor:
    assert found['loss'] is None and found['size'] == 16
    early, more = found['more']
    assert torch.equal(more['again'], found['out'])
    return cross_entropy(found['out'], targets) + 0.3 * cross_entropy(early, targets) \
        + 1e-2 * more['state'].pow(2).mean(1) + 1e-3 * found['given'].sum(1)


def as_dataclass(net: Net, x: torch.Tensor) -> Found:
    last, early, inner = net.both(x)
    return Found(last, (early, inner))


def as_pair(net: Net, x: torch.Tensor) -> Pair:
    return Pair(*net.both(x)[:2])


def by_name(net: Net, *, pixels: torch.Tensor, more: dict[str, torch.Tensor],
            mask: torch.Tensor) -> list[torch.Tensor]:
    early = net.norm(torch.tanh(net.first(pixels))) * more['scale'] * mask[:, None]
    return [net.early(early), net.out(torch.tanh(net.second(early)) + more['shift'])]


def loss_of_several(found: Any, targets: Any) -> torch.Tensor:
    near = F.mse_loss(found[0], targets['points'], reduction='none').mean(1)
    return near + cross_entropy(found[1], targets['more'][0])


def decaying(named: Any) -> torch.optim.Optimizer:
    return torch.optim.SGD([p for _, p in named], lr=0.05, momentum=0.9, weight_decay=1e-2)


def words() -> torch.Tensor:
    """Return targets of which some are to be ignored, all of some samples."""
    found = torch.randint(0, 10, (SAMPLES, 5))
    found[torch.rand(SAMPLES, 5) < 0.4] = -100
    found[::7] = -100
    return found


def per_word(net: Net, x: torch.Tensor) -> torch.Tensor:
    return net.both(x.unflatten(1, (5, 12)).flatten(0, 1))[0].unflatten(0, (-1, 5))


def loss_per_word(outputs: torch.Tensor, targets: torch.Tensor) -> Any:
    losses = F.cross_entropy(outputs.transpose(1, 2), targets, reduction='none')
    return losses.sum(1), (targets != -100).sum(1)


def weighted_loss(outputs: Pair, targets: torch.Tensor) -> Any:
    weight = torch.linspace(0.2, 2, 10, dtype=torch.float64)
    return F.cross_entropy(outputs.last, targets, weight, reduction='none'), weight[targets]


def task_of(call: Callable[..., Any], loss: Callable[..., Any], data: Any = None,
            **changes: Any) -> TrainingTask:
    torch.manual_seed(3)
    inputs = torch.randn(SAMPLES, 12, dtype=torch.float64)
    return TrainingTask(Net(call).double(), loss, decaying, data or TensorData(
        (inputs,), torch.randint(0, 10, (SAMPLES,))), **({
            'batch': 14, 'grain': 4, 'micro_batches': 2, 'rounds': 5} | changes))


def several() -> TensorData:
    torch.manual_seed(5)
    return TensorData(
        {'pixels': torch.randn(SAMPLES, 12).double(), 'mask': torch.rand(SAMPLES) > 0.2,
         'more': {'scale': torch.rand(SAMPLES, 16).double(),
                  'shift': torch.randn(SAMPLES, 1).double()}},
        {'points': torch.randn(SAMPLES, 10).double(),
         'more': (torch.randint(0, 10, (SAMPLES,)),)})


def texts() -> TensorData:
    torch.manual_seed(6)
    return TensorData((torch.randn(SAMPLES, 60).double(),), words())


TASKS = {
    'dict': lambda: task_of(as_dict, loss_of_dict),
    'dataclass': lambda: task_of(as_dataclass, lambda found, targets: cross_entropy(
        found.logits, targets) + found.states[0].pow(2).mean(1)),
    'pair, weights of classes': lambda: task_of(as_pair, weighted_loss, clip=0.5),
    'several of all': lambda: task_of(by_name, loss_of_several, several()),
    'ignored words': lambda: task_of(per_word, loss_per_word, texts()),
}


def check(task: TrainingTask, devices: str = 'abc', seed: int = 2, bound: float = 1e-10) -> None:
    try_task(task)
    graph, alone = capture(task), train_alone_drawing(task)
    data = {'data': (('a', len(task.data) - 9), ('c', 9))} if seed % 2 else {}
    planner = shuffled(seed, len(graph.layers), task, **data)
    trainer, state = train(task, devices, planner, {'b': (1, 'F1')}, every=1, graph=graph,
                           expected=False)
    assert difference(state, alone) < bound
    for number, figures in trainer.commit.figures.items():
        assert figures['samples'] == task.batch
        assert figures['loss'] == pytest.approx(alone.loss[number], rel=bound)
        assert figures['norm'] == pytest.approx(alone.norm[number], rel=10 * bound)


@pytest.mark.parametrize('seed', [2, 3])
@pytest.mark.parametrize('kind', TASKS)
def test_three_devices_train_as_one_process(kind, seed):
    """One of them dies on the way; with odd seeds the data lie on two of them."""
    check(TASKS[kind](), seed=seed)


def test_results_are_judged_by_the_first_tensor():
    task = TASKS['dict']()
    task = task_of(as_dict, loss_of_dict, check=task.data)
    try_task(task)
    found = judge(task, {f'p:{name}': p for name, p in task.module.named_parameters()})
    inputs, targets = task.data.take(range(SAMPLES))
    outputs = task.module.eval()(*inputs)
    assert found is not None and found.samples == SAMPLES
    assert found.loss == pytest.approx(float(loss_of_dict(outputs, targets).detach().mean()))
    assert found.accuracy == int((outputs['out'].argmax(1) == targets).sum()) / SAMPLES


def test_a_round_in_which_nothing_counts_changes_nothing_but_by_decay():
    task = task_of(per_word, loss_per_word, TensorData(
        (torch.randn(SAMPLES, 60).double(),), torch.full((SAMPLES, 5), -100)))
    check(task)


def test_items_that_are_dicts_name_what_the_loss_gets():
    rows = [{'x': torch.full((2,), float(k)), 'labels': k, 'more': {'y': k}} for k in range(5)]
    inputs, targets = Items(rows).take([1, 3])
    assert list(inputs) == ['x', 'more'] and targets.tolist() == [1, 3]
    inputs, targets = Items(rows, ('more', 'labels')).take([1, 3])
    assert list(inputs) == ['x'] and targets['more']['y'].tolist() == [1, 3]
    with pytest.raises(TaskError, match=r'dict of x, labels, more: target is not .*targets='):
        Items(rows, 'target').take([0])


@pytest.mark.parametrize('item, reason', [
    ((torch.zeros(3), 'a text'), r'sample 3: item\[1\] is a str; .*leave it out, or make it'),
    ({'state': {'pose': None}, 'labels': 1}, r"sample 3: item\['state'\]\['pose'\] is None; "
     '.*zeros and a flag'),
    ((torch.zeros(4), 0), r'sample 3: item\[0\] is float32 of the shape \(4,\), that of sample 1 '
     r'float32 of the shape \(3,\): .*pad'),
    ((torch.zeros(3), 0.5), r'sample 3: item\[1\] is float64 .*that of sample 1 int64'),
    ((torch.zeros(3).double(), 1), r'sample 3: item\[0\] is float64'),
    ((torch.zeros(3), 1, 2), r'sample 3: item\[2\] is int64 .*sample 1 is not there'),
    ({'labels': 1}, r'sample 3: ')])
def test_an_item_that_is_not_as_others_is_named_with_its_number_and_what_to_do(item, reason):
    good = {'state': {'pose': torch.zeros(3)}, 'labels': 1} if isinstance(item, dict) else \
        (torch.zeros(3), 1)
    for rows in (Items([good] * 3 + [item]), ItemsHere([good] * 3 + [item], 0, 4)):
        rows.take([0, 2])
        with pytest.raises(TaskError, match=reason):
            rows.take([1, 3])


def test_numbers_in_double_precision_are_named_where_the_module_has_none():
    rows = [({'pose': [float(k), 0.5]}, k % 2) for k in range(8)]

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.out = nn.Linear(2, 2)

        def forward(self, state):
            return self.out(torch.stack(state['pose'], 1))

    task = TrainingTask(Net(), cross_entropy, decaying, Items(rows), 4, 2, 1, 2)
    with pytest.raises(TaskError, match=r"inputs\[0\]\['pose'\]\[0\].* float64, .*float32"):
        try_task(task)
    try_task(replace(task, module=Net().double()))


@pytest.mark.parametrize('call, loss, reason', [
    (lambda net, x: (net.both(x)[0], net.out.weight), cross_entropy, 'expand'),
    (lambda net, x: (net.both(x)[0], net.both(x)[1].mean()), cross_entropy, 'expand'),
    (lambda net, x: {'out': net.both(x)[0], 'rows': x.shape[0]},
     lambda o, t: cross_entropy(o['out'], t), 'returns a SymInt'),
    (lambda net, x: {'out': net.both(x)[0], 'net': net}, lambda o, t: cross_entropy(o['out'], t),
     'returns a Net'),
    (as_pair, lambda o, t: cross_entropy(o[1].detach(), t), 'depends on no parameter'),
    (as_pair, cross_entropy, 'gets what the module returns, a Pair'),
    (as_pair, lambda o, t: F.cross_entropy(o[0], t), 'Where samples do not count alike'),
    (as_pair, lambda o, t: (cross_entropy(o[0], t), (t != 3).sum()), 'Where samples do not'),
    (as_pair, lambda o, t: (cross_entropy(o[0], t), -torch.ones(len(t))), '0 or more')])
def test_what_is_not_a_row_a_sample_is_refused_with_what_to_change(call, loss, reason):
    with pytest.raises(TaskError, match=reason):
        task = task_of(call, loss)
        try_task(task)
        try_rounds(task, capture(task))


def test_a_loss_that_fails_in_eval_mode_is_refused_where_the_result_is_judged():
    def call(net: Net, x: torch.Tensor) -> Any:
        last, early, _ = net.both(x)
        return (last, early) if net.training else last

    def loss(found: Any, targets: torch.Tensor) -> torch.Tensor:
        last, early = found
        return cross_entropy(last, targets) + cross_entropy(early, targets)
    try_task(task_of(call, loss))
    with pytest.raises(TaskError, match='loss in eval mode fails.*let the loss take both'):
        try_task(task_of(call, loss, check=task_of(call, loss).data))


def vision(make: Callable[..., nn.Module], loss: Callable[..., Any], size: int, targets: Any,
           **changes: Any) -> TrainingTask:
    torch.manual_seed(3)
    data = TensorData((torch.randn(12, 3, size, size).double(),), targets)
    return TrainingTask(make().double(), loss, decaying, data, **({
        'batch': 5, 'grain': 3, 'micro_batches': 2, 'rounds': 2, 'clip': 0.01,
        'freeze_norms': True} | changes))


@pytest.mark.slow
@pytest.mark.parametrize('name', ['googlenet', 'fcn_resnet50'])
def test_networks_of_torchvision_with_early_outputs(name):
    models = torchvision().models
    classes = torch.arange(12) % 7

    def early(found: Any, targets: torch.Tensor) -> torch.Tensor:
        last, *others = found
        return cross_entropy(last, targets) + sum(
            0.3 * cross_entropy(one, targets) for one in others)

    def pixels(found: Any, targets: torch.Tensor) -> Any:
        losses = sum(weight * F.cross_entropy(found[key], targets, ignore_index=6,
                                              reduction='none').flatten(1).sum(1)
                     for key, weight in (('out', 1.0), ('aux', 0.4)))
        return losses, (targets != 6).flatten(1).sum(1)
    task = {
        'googlenet': lambda: vision(lambda: models.googlenet(
            num_classes=7, init_weights=False, dropout=0.0, dropout_aux=0.0), early, 64, classes),
        'fcn_resnet50': lambda: vision(lambda: without_dropout(models.segmentation.fcn_resnet50(
            weights_backbone=None, num_classes=7, aux_loss=True)), pixels, 32,
            torch.randint(0, 7, (12, 32, 32)))}[name]()
    check(task)


def without_dropout(module: nn.Module) -> nn.Module:
    for part in module.modules():
        if isinstance(part, nn.Dropout):
            part.p = 0.0
    return module


@pytest.mark.slow
def test_a_network_of_transformers_with_arguments_by_name():
    transformers = pytest.importorskip('transformers')
    torch.manual_seed(3)
    config = transformers.BertConfig(
        vocab_size=50, hidden_size=16, num_hidden_layers=2, num_attention_heads=2,
        intermediate_size=32, max_position_embeddings=16, hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0, num_labels=4)
    module = transformers.BertForSequenceClassification(config).double()
    words = torch.randint(0, 50, (SAMPLES, 9))
    rows = [{'input_ids': words[k], 'attention_mask': (torch.arange(9) < 5 + k % 5).long(),
             'labels': k % 4} for k in range(SAMPLES)]
    check(TrainingTask(module, lambda found, targets: cross_entropy(found.logits, targets),
                       decaying, Items(rows), batch=14, grain=4, micro_batches=2, rounds=5))
