# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""Backward passes: measured where a network has them, reported where it has none."""
from small_models import UNet
import torch
from torch import nn

from intradp_ros.graph.capture import capture
from intradp_ros.profiling.backward import backward_factor


class Signs(nn.Module):
    def forward(self, x):
        return (x > 0).to(torch.int64)


def test_a_network_runs_backward_and_is_left_as_it_was():
    example = (torch.rand(1, 3, 64, 64),)
    graph = capture(UNet().eval(), example)
    before = {name: value.clone() for name, value in graph.parameters.items()}
    factor = backward_factor(graph, example, 1)
    assert factor is not None and factor > 0
    assert all(torch.equal(before[n], v) and v.grad is None for n, v in graph.parameters.items())


def test_what_has_no_gradient_has_no_backward_pass():
    example = (torch.rand(4, 4),)
    assert backward_factor(capture(Signs(), example), example) is None
