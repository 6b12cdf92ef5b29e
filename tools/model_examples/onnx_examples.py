# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""Models in ONNX, against what the reference evaluator of the package `onnx` says of them."""
from __future__ import annotations

from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any
import warnings

import torch

from intradp_lab.zoo.wheel_files import wheel_file
from intradp_ros.core.torchvision_import import torchvision
from intradp_ros.importers.onnx_evaluation import evaluator
from model_examples.example import Example, IMAGENET, normalised, Prepared, rescale_weights

SHAPE = (1, 3, 64, 96)
INPUT = ('--input', '1x3x64x96')
HALF = (0.5, 0.5, 0.5)
#: By Baidu and RapidAI, Apache-2.0; inputs in BGR, normalised about a half.
PADDLE = ('rapidocr-onnxruntime', 'rapidocr_onnxruntime/models')


def reference(path: Path) -> Any:
    """Return what computes a file by the operators' definitions."""
    evaluates = evaluator(import_module('onnx').load(str(path)))
    name = evaluates.input_names[0]
    return lambda floats: [torch.from_numpy(x) for x in evaluates.run(
        None, {name: floats.numpy()})]


def _trained(file: str, head: str, folder: Path) -> Prepared:
    del folder
    path = wheel_file(PADDLE[0], f'{PADDLE[1]}/{file}')
    own = reference(path)
    half = ','.join(map(str, HALF))
    return Prepared(str(path), (*INPUT, '--mean', half, '--std', half, '--colours', 'bgr',
                                *(('--head', head) if head != 'tensors' else ())),
                    lambda pixels: own(normalised(pixels, HALF, HALF)))


def _exported(name: str, head: str, folder: Path) -> Prepared:
    """Write an architecture of torchvision as ONNX."""
    models = torchvision().models
    model = rescale_weights(models.get_model(name, weights=None), SHAPE)
    path = folder / f'{name}.onnx'
    with warnings.catch_warnings():
        warnings.simplefilter('ignore')  # the exporter that needs no further package is old
        torch.onnx.export(model, (torch.zeros(SHAPE),), str(path), dynamo=False)
    own = reference(path)
    mean, std = (','.join(map(str, part)) for part in IMAGENET)
    return Prepared(str(path), (*INPUT, '--mean', mean, '--std', std, '--head', head),
                    lambda pixels: own(normalised(pixels, *IMAGENET)))


ONNX_EXAMPLES = (
    Example('PP-OCRv4, text in pictures, ONNX',
            partial(_trained, 'ch_PP-OCRv4_det_infer.onnx', 'tensors'), 'tensors', trained=True),
    Example('PP-OCR, which way up, ONNX',
            partial(_trained, 'ch_ppocr_mobile_v2.0_cls_infer.onnx', 'classification'),
            'classification', trained=True),
    Example('SqueezeNet, ONNX', partial(_exported, 'squeezenet1_1', 'classification'),
            'classification'),
    Example('MobileNetV2, ONNX', partial(_exported, 'mobilenet_v2', 'classification'),
            'classification'),
)
