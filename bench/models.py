# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""The networks that benchmarks measure, and the command line and tables they share."""
from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping, Sequence
import importlib
import importlib.util
import json
from typing import Any

from rich.console import Console
from rich.table import Table
import torch
from torch import nn

from intradp_lab.zoo.classifiers.convnext import ConvNeXt
from intradp_ros.cli.output_paths import result_file
from intradp_ros.core.atomic_write import write_atomically
from intradp_ros.core.torchvision_import import torchvision
from intradp_ros.perception.graph_wrappers import HalfPrecision
from intradp_ros.runtime.models.catalogue import ModelSpec

PHOTOGRAPH = (1, 3, 224, 224)
MODELS: Mapping[str, ModelSpec] = {
    'hed 160x384': ModelSpec('intradp_lab.zoo.hed:hed', (1, 3, 160, 384), torch.uint8),
    'mobilenet_v2': ModelSpec('intradp_lab.zoo.mobilenet_v2:mobilenet_v2', PHOTOGRAPH,
                              torch.uint8),
    'mobilenet_v3': ModelSpec('pytorchcv.models.mobilenetv3:mobilenetv3_large_w1', PHOTOGRAPH),
    'resnet50': ModelSpec('pytorchcv.models.resnet:resnet50', PHOTOGRAPH),
    'resnet50 bfloat16': ModelSpec('models:resnet50_bfloat16', PHOTOGRAPH),
    'convnext_t': ModelSpec('models:convnext_tiny', PHOTOGRAPH),
    'vgg19': ModelSpec('pytorchcv.models.vgg:vgg19', PHOTOGRAPH),
    'yolov8n 320x320': ModelSpec('models:yolov8n', (1, 3, 320, 320)),
}
# Packages that the source does not name.
_NEEDED = {'models:yolov8n': 'ultralytics', 'models:resnet50_bfloat16': 'pytorchcv'}
Measure = Callable[[ModelSpec, int], Any]


def convnext_tiny() -> nn.Module:
    """Return ConvNeXt Tiny with random weights (28 M parameters)."""
    torch.manual_seed(0)
    return ConvNeXt(((96, 3), (192, 3), (384, 9), (768, 3)))


def resnet50_bfloat16() -> nn.Module:
    """Return the ResNet-50 that computes in half precision."""
    return HalfPrecision(MODELS['resnet50'].module(), torch.bfloat16)


def yolov8n() -> nn.Module:
    """Return backbone and heads of YOLOv8n with random weights."""
    torchvision()
    tasks = importlib.import_module('ultralytics.nn.tasks')
    model: nn.Module = tasks.DetectionModel('yolov8n.yaml', verbose=False)
    return model


def command_line(doc: str, measure: Measure, show: Callable[[dict[str, Any]], None],
                 repeats: int) -> None:
    """
    Measure the models that the command line names, show the figures, and write them if wanted.

    `repeats` is how often it is measured by default.
    """
    parser = argparse.ArgumentParser(description=doc.strip().splitlines()[0])
    parser.add_argument('models', nargs='*', metavar='MODEL', default=list(MODELS),
                        help=f'which of {", ".join(MODELS)} (default: all that are installed)')
    parser.add_argument('--repeats', type=int, default=repeats,
                        help=f'runs of each (default {repeats})')
    parser.add_argument('--json', type=result_file, help='write the figures here too')
    args = parser.parse_args()
    results = {}
    for name in args.models:
        if name not in MODELS:
            parser.error(f'no model {name!r}; there are {", ".join(MODELS)}')
        missing = missing_package(MODELS[name])
        if missing:
            print(f'{name} is left out: {missing} is not installed')
            continue
        results[name] = measure(MODELS[name], args.repeats)
    show(results)
    if args.json:
        write_atomically(args.json, json.dumps(results, indent=2) + '\n')


def missing_package(spec: ModelSpec) -> str | None:
    """Return the package that a model needs, if it is not installed."""
    package = _NEEDED.get(spec.source, spec.source.partition('.')[0].partition(':')[0])
    return None if importlib.util.find_spec(package) else package


def print_table(title: str, names: Sequence[str], numbers: Sequence[str],
                rows: Sequence[Sequence[str]]) -> None:
    """Print a table whose first columns are names, the others numbers."""
    table = Table(*names, title=title)
    for heading in numbers:
        table.add_column(heading, justify='right')
    for row in rows:
        table.add_row(*row)
    Console(width=110).print(table)
