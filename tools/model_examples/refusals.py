# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""Models that are not supported: each is refused with its cause."""
from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from pathlib import Path

import torch

from intradp_ros.core.torchvision_import import torchvision
from model_examples.check import added
from model_examples.example import Prepared


@dataclass(frozen=True)
class Refusal:
    """What is refused, and a part of what is said then."""

    name: str
    make: Callable[[Path], Prepared]
    says: str


def refused(refusal: Refusal, folder: Path) -> str:
    """Return what ``intradp model add`` says of it; empty if it was not refused."""
    prepared = refusal.make(folder)
    status, _, err = added(['model', 'add', prepared.source, *prepared.options, '--out',
                            str(folder / 'model.graph')])
    return err if status == 2 and not (folder / 'model.graph').exists() else ''


def _nothing(pixels: torch.Tensor) -> None:
    del pixels


def _yolo(config: str, kind: str, folder: Path) -> Prepared:
    torchvision()
    tasks = import_module('ultralytics.nn.tasks')
    model = getattr(tasks, kind)(config, verbose=False)
    model.names = {n: str(n) for n in range(int(vars(model)['yaml']['nc']))}
    torch.save({'model': model}, folder / 'model.pt')
    return Prepared(f'ultralytics:{folder / "model.pt"}', (), _nothing)


def _weights(folder: Path) -> Prepared:
    torch.save(torch.nn.Conv2d(3, 4, 3).state_dict(), folder / 'weights.pth')
    return Prepared(str(folder / 'weights.pth'), ('--input', '1x3x32x32'), _nothing)


def _named(source: str, folder: Path) -> Prepared:
    del folder
    return Prepared(source, ('--input', '1x3x64x96'), _nothing)


def _text(folder: Path) -> Prepared:
    torchvision()
    library = import_module('transformers')
    config = library.BertConfig(hidden_size=16, num_hidden_layers=1, num_attention_heads=2,
                                intermediate_size=16, vocab_size=50)
    library.BertModel(config).save_pretrained(folder / 'bert')
    return Prepared(str(folder / 'bert'), (), _nothing)


REFUSALS = (
    Refusal('boxes that are turned', partial(_yolo, 'yolov8n-obb.yaml', 'OBBModel'), 'OBB'),
    Refusal("ultralytics' RT-DETR", partial(_yolo, 'yolov8-rtdetr.yaml', 'RTDETRDetectionModel'),
            'RTDETRDecoder'),
    Refusal('weights without a network', _weights, 'weights'),
    Refusal("torchvision's SSD", partial(
        _named, 'torchvision:ssdlite320_mobilenet_v3_large'), 'detection'),
    Refusal('a network of videos', partial(_named, 'torchvision:r3d_18'), 'video'),
    Refusal('a network of text', _text, 'not the pixels'),
    Refusal('TensorRT', partial(_named, 'model.engine'), 'engine of TensorRT'),
    Refusal('TensorFlow Lite', partial(_named, 'model.tflite'), 'file of TensorFlow'),
)
