# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""Capture in a forked process: the same graph, the program's own memory, and every failure."""
from __future__ import annotations

from collections.abc import Callable
import os
import time

import pytest
import torch
from torch import nn

from intradp_ros.graph.graph_errors import CaptureError
from intradp_ros.runtime.models.forked_capture import ForkedCapture
from intradp_ros.runtime.models.model import share_graph, share_module

SOURCE = torch.rand(1, 3, 12, 16, generator=torch.Generator().manual_seed(0))


def model() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Conv2d(4, 2, 3)
                         ).eval()


def go_on() -> None:
    """Let a capture go on."""


def test_the_graph_is_the_same_and_shares_the_weights() -> None:
    """What is folded is new; the rest is the model's own memory.  Threads computed before."""
    own, threads = model(), torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        own(torch.rand(4, 3, 200, 200))
        graph, warned = ForkedCapture(own, [SOURCE]).graph(go_on)
    finally:
        torch.set_num_threads(threads)
    assert share_graph(graph).digest == share_module(own, [SOURCE]).digest and not warned
    places = {p.data_ptr() for p in own.parameters()}
    assert sum(t.data_ptr() in places for t in graph.parameters.values()) == 2


class Fails(nn.Module):
    """Does something else than compute, from the second run on, as capture makes it."""

    def __init__(self, action: Callable[[], object]) -> None:
        super().__init__()
        self.action = action

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.action()
        return x * 2


@pytest.mark.parametrize('action, cause', [
    (lambda: 1 / 0, 'division by zero'),
    (lambda: os._exit(3), 'ended with code 3 without an answer'),
    (lambda: os.kill(os.getpid(), 9), r'was killed \(SIGKILL\) without an answer')])
def test_failures_are_named(action: Callable[[], object], cause: str) -> None:
    """Whatever happens to the other process, this one hears a cause."""
    with pytest.raises(CaptureError, match=cause):
        ForkedCapture(Fails(action), [SOURCE]).graph(go_on)


def test_an_endless_capture_is_ended() -> None:
    """As soon as somebody wants it to; no process stays."""
    capture = ForkedCapture(Fails(lambda: time.sleep(1e6)), [SOURCE])

    def stop() -> None:
        raise InterruptedError

    process = capture._process.pid
    with pytest.raises(InterruptedError):
        capture.graph(stop)
    with pytest.raises(ProcessLookupError):
        os.kill(process, 0)
