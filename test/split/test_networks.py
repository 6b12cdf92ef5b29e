# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""Whole networks in random parts, with weights under which the output depends on the input."""
from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from importlib import import_module
from typing import Any

import networks
import pytest
import torch
from torch import nn

from intradp_ros.graph.capture import capture
from intradp_ros.graph.operator_graph import OperatorGraph
from intradp_ros.split.checks.calibrate import calibrate, depends_on_input
from intradp_ros.split.checks.verify import verify
from intradp_ros.split.split_graph import split_graph

Build = Callable[[], nn.Module]


def zoo(name: str, module: str, **settings: Any) -> Build:
    """Build a network of pytorchcv, whose models need no torchvision if taken one by one."""
    def build() -> nn.Module:
        package = pytest.importorskip(f'pytorchcv.models.{module}')
        model: nn.Module = getattr(package, name)(**settings)
        return model

    return build


def vgg19() -> nn.Module:
    """Build VGG19 at a quarter of its width."""
    widths = [16] * 2, [32] * 2, [64] * 4, [128] * 4, [128] * 4
    vgg: nn.Module = import_module('pytorchcv.models.vgg').VGG(channels=[list(w) for w in widths])
    return vgg


WIDE = (64, 96)
NETWORKS: dict[str, tuple[Build, tuple[int, ...], float]] = {
    # how to build it, input size, least share of operations that must run in parts
    'vgg19': (vgg19, (1, 3, 224, 224), 0.95),
    'resnet50': (zoo('resnet50', 'resnet'), (1, 3, 224, 224), 0.99),
    'densenet121': (zoo('densenet121', 'densenet'), (1, 3, 224, 224), 0.99),
    'mobilenetv2': (zoo('mobilenetv2_w1', 'mobilenetv2'), (1, 3, 224, 224), 0.99),
    'shufflenetv2': (zoo('shufflenetv2_w1', 'shufflenetv2'), (1, 3, 224, 224), 0.99),
    'seresnet18': (zoo('seresnet18', 'seresnet'), (1, 3, 224, 224), 0.99),
    'squeezenet': (zoo('squeezenet_v1_0', 'squeezenet'), (1, 3, 224, 224), 0.99),
    'bninception': (zoo('bninception', 'bninception'), (1, 3, 224, 224), 0.99),
    'unet': (zoo('unet_cityscapes', 'unet', in_size=WIDE), (1, 3, *WIDE), 1.0),
    'linknet': (zoo('linknet_cityscapes', 'linknet', in_size=WIDE), (1, 3, *WIDE), 1.0),
    'deeplabv3': (
        zoo('deeplabv3_resnetd50b_voc', 'deeplabv3', in_size=WIDE), (1, 3, *WIDE), 0.99),
    'pspnet': (
        zoo('pspnet_resnetd50b_voc', 'pspnet', in_size=(96, 96)), (1, 3, 96, 96), 0.99),
    'yolo': (networks.Yolo, (1, 3, *WIDE), 0.99),
    'googlenet': (networks.GoogLeNet, (1, 3, 101, 119), 0.99),
    'volume': (networks.VolumeNet, (1, 1, 12, 10, 14), 0.95),
}


@pytest.fixture(scope='module', params=NETWORKS)
def network(request: pytest.FixtureRequest) -> tuple[OperatorGraph, tuple[int, ...], float]:
    """Return a captured network in double precision, its input size, its least share."""
    build, size, share = NETWORKS[request.param]
    torch.manual_seed(0)
    model, example = build(), (torch.randn(size),)
    calibrate(model, example)
    assert depends_on_input(model, example), 'a constant output would pass any test'
    return capture(model.double(), example[0].double()), size, share


@pytest.mark.parametrize(
    ('axis', 'dtype'), [(2, torch.float64), (3, torch.float64), (None, torch.float32)])
def test_network_in_parts_is_exact(
        network: tuple[OperatorGraph, tuple[int, ...], float], axis: int | None,
        dtype: torch.dtype) -> None:
    graph, size, share = network
    x = torch.randn(size, generator=torch.Generator().manual_seed(1), dtype=dtype)
    split = split_graph(in_precision(graph, dtype), axis)
    report = verify(split, [x], parts=3 if axis == 2 else 2)
    assert report.exact, report.worst
    assert report.split_share >= share


def in_precision(graph: OperatorGraph, dtype: torch.dtype) -> OperatorGraph:
    """Return the graph with another type of floating point numbers."""
    parameters = {
        name: x.to(dtype) if x.is_floating_point() else x for name, x in graph.parameters.items()}
    values = tuple(
        replace(v, dtype=dtype) if v.dtype.is_floating_point else v for v in graph.values)
    return replace(graph, parameters=parameters, values=values)
