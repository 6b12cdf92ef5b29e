# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""Networks in layers: the export is the module, and each grain is computed as if it were alone."""
from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import nn
import torch.nn.functional as F  # noqa: N812
from training_fleet import make_task

from intradp_ros.systems.training.base.task import TaskError
from intradp_ros.systems.training.layers.layer_capture import capture
from intradp_ros.systems.training.layers.stage_interpreter import Pass, run_pass


class Tail(nn.Module):
    """A convolution, something, and a layer that learns behind it."""

    def __init__(self, middle):
        super().__init__()
        self.conv, self.middle, self.last = nn.Conv2d(1, 4, 3), middle, nn.Linear(144, 10)

    def forward(self, x):
        return self.last(self.middle(self.conv(x)).flatten(1))


class Function(nn.Module):
    def __init__(self, call):
        super().__init__()
        self.call = call

    def forward(self, x):
        return self.call(x)


def stochastic_depth(x):
    noise = torch.empty(x.shape[0], 1, 1, 1, dtype=x.dtype).bernoulli_(0.7)
    return x * noise.div_(0.7)


def noisy(x):
    return x + 0.1 * torch.randn_like(x)


def centred(x):
    """Let samples see each other, which only those of a grain may."""
    return x - x.mean(0)


def written_view(x):
    y = F.dropout(x, 0.2)
    y[:, 0] += 1
    return y


def captured(middle):
    return capture(replace(make_task(), module=Tail(middle).double()))


def passed(graph, grains, rows, x, number=3):
    one = Pass(5, number, grains, rows)
    return run_pass(graph.stage(0, len(graph.layers)), (x,), one, apart=graph.apart)[0]


@pytest.mark.parametrize('middle', [
    nn.Dropout(0.3), nn.Dropout2d(0.3), Function(stochastic_depth), nn.BatchNorm2d(4),
    nn.AlphaDropout(0.2), nn.RReLU(), Function(noisy), Function(centred)])
def test_grains_do_not_depend_on_what_else_is_computed(middle):
    graph, x = captured(middle), torch.randn(7, 1, 8, 8).double()
    whole = passed(graph, (2, 3, 4), (3, 3, 1), x)
    parts = [passed(graph, (grain,), (len(part),), part)
             for grain, part in zip((2, 3, 4), torch.split(x, [3, 3, 1]))]
    assert torch.allclose(whole, torch.cat(parts), rtol=0, atol=1e-12)
    if not isinstance(middle, nn.BatchNorm2d) and getattr(middle, 'call', None) is not centred:
        assert not torch.equal(whole, passed(graph, (2, 3, 4), (3, 3, 1), x, number=4))
        assert not torch.equal(whole, passed(graph, (3, 4, 5), (3, 3, 1), x))


def test_attention_drops_by_grain():
    graph, x = capture(make_task('dropout')), torch.randn(6, 1, 8, 8).double()
    whole = passed(graph, (0, 1), (3, 3), x)
    parts = [passed(graph, (k,), (3,), x[3 * k:3 * k + 3]) for k in range(2)]
    assert torch.allclose(whole, torch.cat(parts), rtol=0, atol=1e-12)


def test_exports_that_are_not_the_module_are_refused_with_dropout_too():
    with pytest.raises(TaskError, match='writes to a view .*: use no views'):
        captured(Function(written_view))
    with pytest.raises(TaskError, match='does not return what the module returns'):
        captured(Function(lambda x: x * (2 if torch.compiler.is_exporting() else 1)))


def test_gradients_of_the_export_are_compared():
    class Once(nn.Module):
        """Lets gradients through where it is exported only: the export cannot know."""

        def forward(self, x):
            return x * 1.0 if torch.compiler.is_exporting() else x.detach() * 1.0

    with pytest.raises(TaskError, match='other gradients of conv'):
        captured(Once())
