# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""What is proved to keep samples apart does so; what mixes them is never proved not to."""
from __future__ import annotations

from collections.abc import Callable
import copy
import random
from typing import Any

import pytest
from random_tasks import CHANNELS, FLAT, IMAGE, LENGTH, Make, SEQUENCE, SIDE, WIDTH
import torch
from torch import nn
import torch.nn.functional as F  # noqa: N812

from intradp_ros.systems.training.layers.export_rewrite import functional, inline
from intradp_ros.systems.training.layers.layer_capture import exported
from intradp_ros.systems.training.layers.row_independence import not_proved
from intradp_ros.systems.training.layers.stage_interpreter import Pass, run_pass

SHAPES = {'flat': (WIDTH,), 'image': (CHANNELS, SIDE, SIDE), 'sequence': (LENGTH, WIDTH)}
BLOCKS = [pytest.param(make, kind, id=f'{kind}{k}') for kind, blocks in (
    ('flat', FLAT), ('image', IMAGE), ('sequence', SEQUENCE)) for k, make in enumerate(blocks)]


class Of(nn.Module):
    def __init__(self, call: Callable[..., Any], part: nn.Module | None = None) -> None:
        super().__init__()
        self.call, self.part = call, part
        self.w = nn.Parameter(torch.randn(4, 4).double())

    def forward(self, *inputs: torch.Tensor) -> Any:
        return self.call(self, *inputs)


def graph_of(module: nn.Module, *inputs: torch.Tensor) -> tuple[torch.fx.GraphModule, bool]:
    root = exported(Of(lambda s, *given: s.part(*given), module.train()), inputs)
    root.graph.set_codegen(torch.fx.graph.CodeGen())
    inline(root)
    return root, functional(root)[2]


def values(root: torch.fx.GraphModule, x: torch.Tensor, alone: bool) -> list[torch.Tensor]:
    """Return results and gradients of two grains, computed together or each alone."""
    export = copy.deepcopy(root)
    x = x.clone().requires_grad_()
    made, = run_pass(export, (x * 1,), Pass(0, 0, (0, 1), (3, 2)), apart=alone)
    weights = torch.linspace(0.5, 1.5, made.numel(), dtype=made.dtype)
    torch.autograd.backward((made.flatten() * weights).sum())
    return [made.detach(), *(torch.zeros(()) if p.grad is None else p.grad.to_dense()
                             for p in (x, *export.parameters()))]


@pytest.mark.parametrize('make, kind', BLOCKS)
def test_blocks_that_are_proved_to_keep_samples_apart_do(make: Make, kind: str) -> None:
    torch.manual_seed(1)
    module = make(random.Random(1)).double()
    x = torch.randn(5, *SHAPES[kind]).double()
    root, draws = graph_of(module, x)
    if draws:
        return
    reason = not_proved(root.graph)
    assert not reason, 'these blocks all do'
    for one, other in zip(values(root, x, False), values(root, x, True), strict=True):
        assert torch.allclose(one, other, rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize('call', [
    lambda s, x: x - x.mean(0), lambda s, x: x / x.sum(), lambda s, x: x / x.shape[0],
    lambda s, x: x @ x.T @ x, lambda s, x: x.cumsum(0), lambda s, x: x.flip(0),
    lambda s, x: x.softmax(0), lambda s, x: x + torch.arange(x.shape[0])[:, None],
    lambda s, x: x * (x > 5).any(), lambda s, x: F.layer_norm(x.T, (x.shape[0],)).T,
    lambda s, x: x.T.reshape(x.shape[0], -1), lambda s, x: x[torch.randperm(x.shape[0])],
    lambda s, x: x.sort(0)[0], lambda s, x: F.normalize(x, dim=0), lambda s, x: x.roll(1, 0),
    lambda s, x: torch.einsum('bi,bj->ij', x, x)[None].expand(x.shape[0], 4, 4),
    lambda s, x: torch.cdist(x, x) @ x, lambda s, x: x.index_add(0, x.argmax(0), x[:4]),
    lambda s, x: torch.cat([x[1:], x[:1]]), lambda s, x: x.T @ x + x[:, :1, None],
    lambda s, x: F.batch_norm(x.T, None, None, training=True).T,
    lambda s, x: F.dropout(s.w, 0.5)[None] * x[:, None],
    lambda s, x: x.view(-1).cumsum(0).view_as(x), lambda s, x: F.linear(x.T, x.T).T @ x.T,
    lambda s, x: x.scatter(0, x.argsort(0), x), lambda s, x: torch.maximum(x, x.amax()),
    lambda s, x: torch.zeros(4).double().add_(x.sum(0)) + x])
def test_what_mixes_samples_is_not_proved_to_keep_them_apart(call: Callable[..., Any]) -> None:
    torch.manual_seed(1)
    try:
        root = exported(Of(call), (torch.randn(5, 4).double(),))
    except Exception:
        return  # nor can it be exported
    assert not_proved(root.graph)


@pytest.mark.parametrize('call', [
    lambda s, o, t: F.cross_entropy(o, t, reduction='none'),
    lambda s, o, t: F.cross_entropy(o, t, torch.linspace(0.2, 2, 4).double(), reduction='none'),
    lambda s, o, t: F.mse_loss(o, F.one_hot(t, 4).double(), reduction='none').mean(1),
    lambda s, o, t: (F.smooth_l1_loss(o, o.detach() * 2, reduction='none') * (t > 1)[:, None]).sum(
        1) + F.binary_cross_entropy_with_logits(o[:, 0], (t > 1).double(), reduction='none'),
    lambda s, o, t: F.kl_div(o.log_softmax(1), F.one_hot(t, 4).double(), reduction='none').sum(1),
    lambda s, o, t: F.cross_entropy(o[:, :, None].expand(-1, 4, 3), t[:, None].expand(-1, 3),
                                    reduction='none').flatten(1).mean(1)])
def test_usual_losses_are_proved_to_look_at_each_sample_alone(call: Callable[..., Any]) -> None:
    root = exported(Of(call), (torch.randn(5, 4).double(), torch.arange(5) % 4))
    assert not not_proved(root.graph)
