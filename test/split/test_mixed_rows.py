# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""Whether rows of a batch are apart is shown by what operators read, not by a few numbers."""
from __future__ import annotations

import pytest
import torch
from torch import nn

from intradp_ros.graph.capture import capture
from intradp_ros.split.mixed_rows import mixed_rows


class Of(nn.Module):
    """A function as a module."""

    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, *tensors):
        return self.function(*tensors)


def rare(x):
    """Mix rows where one number is large, as no random row has it."""
    return torch.where(x.abs().max() > 100, x.softmax(0), x)


@pytest.mark.parametrize('function', [
    lambda x: x - x.mean(0), lambda x: x.softmax(0), lambda x: x.argsort(0), rare,
    lambda x: x.flip(0), lambda x: x @ x.T @ x, lambda x: x.reshape(-1).cumsum(0).reshape(4, 6),
    lambda x: x[:1].expand(4, 6) + 1, lambda x: x + x.reshape(6, 4).T,
    lambda x: x.view(2, 12).softmax(1).view(4, 6), lambda x: (x / x.norm(), x * 2),
    lambda x: x.roll(1, 0), lambda x: x[torch.tensor([0, 0, 2, 3])],
    lambda x: x[x.long() % 4, 0], lambda x: torch.eye(4)[x.argmax(0) % 4]])
def test_rows_that_may_mix_are_seen(function):
    assert mixed_rows(capture(Of(function), torch.randn(4, 6))).startswith('rows of a batch may')


@pytest.mark.parametrize('module, tensors', [
    (nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.MaxPool2d(2),
                   nn.Flatten(), nn.Linear(36, 5)), [torch.randn(4, 3, 8, 8)]),
    pytest.param(nn.TransformerEncoderLayer(8, 2, 16, batch_first=True), [torch.randn(4, 5, 8)],
                 marks=pytest.mark.slow),
    (Of(lambda ids, mask, x: (nn.functional.one_hot(ids, 9).float() * mask[:, :, None]).sum(1)
        + x.reshape(4, 3, 3).transpose(1, 2).flatten(1)),
     [torch.ones(4, 7, dtype=torch.int64), torch.ones(4, 7), torch.randn(4, 9)]),
    (Of(lambda x, mask: x * (mask.bool()[torch.arange(4)[:, None, None], torch.arange(6)]
                             & torch.ones(4, 6, 6, dtype=torch.bool)).sum(1)),
     [torch.randn(4, 6), torch.ones(4, 6)]),
    (Of(lambda x: (x.argmax(1), x.sort(1).values, x.cumsum(1), x.softmax(1))),
     [torch.randn(4, 6)])])
def test_rows_apart_are_shown_to_be(module, tensors):
    assert mixed_rows(capture(module.eval(), tuple(tensors))) == ''
