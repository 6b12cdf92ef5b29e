# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""Split graphs on an accelerator: what is placed there, and that results are the unsplit ones."""
from __future__ import annotations

from imagined_accelerator import ACCELERATORS, NAME, needed
import pytest
from small_models import classes, dense
import torch
from torch import nn

from intradp_ros.graph.capture import capture
from intradp_ros.split.calls.accelerator import Accelerator, DeviceError, open_device
from intradp_ros.split.checks.verify import verify
from intradp_ros.split.kernel_device import HOST
from intradp_ros.split.on_device import split_for


@needed
def test_the_imagined_accelerator_is_as_strict_as_a_real_one() -> None:
    """It has memory of its own, takes nothing from the host's, and numbers come back unchanged."""
    here = torch.rand(2, 3, 8, 8)
    there = here.to(NAME)
    assert there.device.type == NAME
    assert there.cpu().equal(here)
    there.narrow(2, 0, 4).mul_(2.0)
    assert there.cpu()[:, :, :4].equal(2 * here[:, :, :4])
    assert not there.cpu().equal(here)
    weight = torch.rand(4, 3, 3, 3)
    got = nn.functional.conv2d(there, weight.to(NAME))
    assert got.cpu().equal(nn.functional.conv2d(there.cpu(), weight))
    for call in (lambda: there + here, lambda: torch.cat([there, here]),
                 lambda: there.index_select(0, torch.tensor([0])),
                 lambda: nn.functional.conv2d(there, weight)):
        with pytest.raises(RuntimeError, match='of the host'):
            call()


class MakesTensors(nn.Module):
    """Uses tensors that no input and no parameter is."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        ramp = torch.arange(x.shape[2], device=x.device, dtype=x.dtype).view(-1, 1)
        return x.cumsum(3) * ramp + torch.zeros_like(x).where(x > 0.5, torch.full_like(x, 2.0))


@pytest.mark.parametrize('device', ACCELERATORS)
@pytest.mark.parametrize('network', [dense, classes, MakesTensors])
def test_a_split_graph_on_an_accelerator_is_exact(network: type[nn.Module], device: str) -> None:
    """In random parts, with weights there, and those of the captured graph here."""
    x = torch.rand(1, 3, 64, 96, generator=torch.Generator().manual_seed(0))
    graph = capture(network(), (x,))
    split = split_for(graph, None, Accelerator(device))
    assert split.captured is graph
    assert {t.device.type for t in graph.parameters.values()} <= {'cpu'}
    assert {t.device.type for t in split.graph.parameters.values()} <= {torch.device(device).type}
    for parts in (2, 5):
        assert all(e.exact for e in verify(split, (x,), parts).outputs)


@needed
def test_devices_by_name() -> None:
    """A missing one is reported with what to do about it."""
    assert open_device('cpu') is HOST
    if not torch.cuda.is_available():
        assert open_device('auto') is HOST
    assert open_device(NAME).name == f'{NAME}:0'
    for name in ('cuda:77', 'meta', 'nonsense', ''):
        with pytest.raises(DeviceError, match=f"no device '{name}' .*install a build of PyTorch"):
            open_device(name)
