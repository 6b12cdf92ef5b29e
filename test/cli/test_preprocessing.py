# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""What becomes of real pictures before a model sees them: the numbers of each library itself."""
from __future__ import annotations

from importlib.resources import files
import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import cv2
import numpy as np
import PIL.Image
import pytest
import torch

from intradp_ros.core.torchvision_import import torchvision
from intradp_ros.graph.reference_evaluation import run_graph
from intradp_ros.graph.serialise import load_graph, load_notes
from intradp_ros.importers.measured_preprocessing import measured, PreprocessingError
from intradp_ros.importers.model_sources import find_model
from intradp_ros.importers.transformers_folder import (
    best_pairs,
    from_folder,
    NO_OBJECT,
    way_of,
)
from intradp_ros.perception.card import card_from_json, HeadCard, InputCard
from intradp_ros.perception.heads.detections import detections
from intradp_ros.perception.view import as_carded, place

#: Photographs: one that comes with matplotlib, upright, and a part of it as cameras have it.
PHOTO = cv2.imread(str(files('matplotlib') / 'mpl-data/sample_data/grace_hopper.jpg'))[..., ::-1]
PICTURES = (PHOTO, PHOTO[100:391, 20:497], PHOTO[150:250, 100:300])
ODD = {'shortest_edge': 61}
VIT = {'hidden_size': 16, 'intermediate_size': 16, 'num_hidden_layers': 1,
       'num_attention_heads': 2, 'image_size': 64}


def transformers() -> Any:
    torchvision()
    return pytest.importorskip('transformers')


def ours(picture: np.ndarray, size: tuple[int, int], card: InputCard) -> np.ndarray:
    """Return what the robot makes of a picture, in floats, 3 x height x width."""
    pixels, _ = as_carded(np.ascontiguousarray(picture), size, card)
    floats = pixels[..., ::-1 if card.colours == 'bgr' else 1].astype(np.float64) / 255
    return ((floats - (card.mean or 0.0)) / (card.std or 1.0)).transpose(2, 0, 1)


def check(got: np.ndarray, wanted: np.ndarray, card: InputCard) -> None:
    """Compare in levels of 0 to 255: two ways of rounding to whole ones, and no more."""
    assert got.shape == wanted.shape
    scale = 255 * np.array(card.std or (1.0,) * 3)[:, None, None]
    levels = np.abs(got - wanted) * scale
    assert levels.max() <= 1.51 and levels.mean() < 0.3, (levels.max(), levels.mean(), card)


@pytest.fixture(scope='module')
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return what save_pretrained writes of a small network."""
    library = transformers()
    path = tmp_path_factory.mktemp('saved')
    torch.manual_seed(0)
    library.ViTForImageClassification(library.ViTConfig(**VIT)).save_pretrained(path)
    return path


SIZE = {'height': 48, 'width': 64}
KINDS = [
    ('ViT', {'size': SIZE}), ('ViT', {'size': 48, 'resample': 3}),
    ('ViT', {'size': SIZE, 'rescale_factor': 1 / 127.5, 'do_normalize': False}),
    ('ViT', {'size': SIZE, 'do_rescale': False, 'image_mean': [123.675, 116.28, 103.53],
             'image_std': [58.395, 57.12, 57.375]}),
    ('ViT', {'size': SIZE, 'do_rescale': False, 'do_normalize': False}),
    ('ViT', {'size': SIZE, 'image_mean': 0.5, 'image_std': 0.25}),
    ('ViT', {'size': SIZE, 'resample': 0}), ('ViT', {'size': SIZE, 'resample': 1}),
    ('Beit', {'size': {'height': 70, 'width': 70}, 'crop_size': {'height': 56, 'width': 56},
              'do_center_crop': True, 'do_reduce_labels': True}),
    ('EfficientNet', {'size': SIZE, 'rescale_offset': True, 'rescale_factor': 1 / 127.5}),
    ('EfficientNet', {'size': SIZE, 'include_top': False}),
    ('ConvNext', {'size': {'shortest_edge': 64}, 'crop_pct': 0.875}),
    ('ConvNext', {'size': {'shortest_edge': 384}}),
    ('CLIP', {'size': ODD, 'crop_size': {'height': 56, 'width': 56}}),
    ('MobileNetV2', {'size': {'shortest_edge': 73}, 'crop_size': {'height': 64, 'width': 64}}),
    ('MobileViT', {'size': {'shortest_edge': 72}, 'crop_size': {'height': 64, 'width': 64}}),
    ('PoolFormer', {'size': {'shortest_edge': 64}, 'crop_size': {'height': 64, 'width': 64}}),
    ('Levit', {'size': {'shortest_edge': 64}, 'crop_size': {'height': 64, 'width': 64}}),
    ('Segformer', {'size': {'height': 64, 'width': 96}, 'do_reduce_labels': True}),
    ('DPT', {'size': {'height': 64, 'width': 64}}), ('RTDetr', {'size': SIZE}),
    ('Siglip', {'size': SIZE}), ('DINOv3ViT', {'size': SIZE})]


@pytest.mark.parametrize(('kind', 'said'), KINDS)
def test_processors_of_transformers(folder: Path, kind: str, said: dict[str, Any]) -> None:
    library = transformers()
    own = getattr(library, f'{kind}ImageProcessor')(**said)
    own.save_pretrained(folder)
    found = from_folder(str(folder))
    assert not found.problem and found.shape[:2] == (1, 3)
    for picture in PICTURES:
        wanted = own(images=PIL.Image.fromarray(picture), return_tensors='pt')['pixel_values']
        check(ours(picture, found.shape[2:], found.card.input), wanted[0].double().numpy(),
              found.card.input)


def test_sizes_that_depend_on_the_picture(folder: Path) -> None:
    """A picture of the input's form becomes what the library makes of it; that is said."""
    library = transformers()
    own = library.DetrImageProcessor(size={'shortest_edge': 64, 'longest_edge': 200})
    own.save_pretrained(folder)
    found = from_folder(str(folder))
    assert 'keeps the form' in ' '.join(found.notes) and 'shortest_edge' in found.notes[-1]
    wanted = own(images=PIL.Image.fromarray(PICTURES[2]), return_tensors='pt')['pixel_values'][0]
    check(ours(PICTURES[2], tuple(wanted.shape[1:]), found.card.input), wanted.double().numpy(),
          found.card.input)


@pytest.mark.parametrize(('config', 'says'), [
    ({'image_processor_type': 'ViTImageProcessor', 'size': {'shortest_edge': 0}}, 'stops'),
    ({'image_processor_type': 'NoSuchImageProcessor'}, 'stops'),
    ({'image_processor_type': 'SamImageProcessor'}, 'differs by'),
    ({'image_processor_type': 'VideoMAEImageProcessor'}, 'not one of 1 x 3'),
    ({'image_processor_type': 'MobileViTImageProcessor', 'size': {'shortest_edge': 40},
      'crop_size': {'height': 64, 'width': 64}}, 'differs by'),
    ({'auto_map': {'AutoImageProcessor': 'evil.Processor'}}, 'code of its own')])
def test_what_no_card_says_is_refused(intradp, folder: Path, tmp_path: Path,
                                      config: dict[str, Any], says: str) -> None:
    (folder / 'preprocessor_config.json').write_text(json.dumps(config))
    result = intradp('model', 'add', folder, '--out', tmp_path / 'a.graph')
    assert result.status == 2 and says in result.err and '--mean, --std' in result.err
    given = ['--mean', '0.5,0.5,0.5', '--std', '0.5,0.5,0.5', '--resize', 'stretch']
    assert intradp('model', 'add', folder, *given, '--input', '1x3x64x64', '--out',
                   tmp_path / 'a.graph').status == 0


@pytest.mark.parametrize('kind', ['Detr', 'ConditionalDetr', 'DeformableDetr', 'RTDetr', 'Yolos',
                                  'RfDetr'])
def test_detections_are_those_of_the_processor(kind: str) -> None:
    """A box may have two labels; how many there are is the library's choice."""
    library = transformers()
    if not hasattr(library, f'{kind}ImageProcessor'):
        pytest.skip(f'this release has no {kind}')
    processor = getattr(library, f'{kind}ImageProcessor')()
    way = way_of(processor)
    assert way
    for seed in range(4):
        chance = torch.Generator().manual_seed(seed)
        logits = 3 * torch.randn(1, 120, 4, generator=chance) - 1
        boxes = torch.rand(1, 120, 4, generator=chance)
        wanted = processor.post_process_object_detection(
            SimpleNamespace(logits=logits, pred_boxes=boxes), 0.4, [(480, 640)])[0]
        outputs = {'logits': logits, 'pred_boxes': boxes} if way == NO_OBJECT \
            else best_pairs(logits, boxes, way)
        found = detections(outputs, HeadCard(
            'detections', score_threshold=0.4, iou_threshold=1.0, max_detections=120,
            form='xywh', relative=True), place((480, 640), (480, 640), 'stretch'))
        order = wanted['scores'].argsort(descending=True)
        assert len(found.scores) == len(order) > 10
        assert found.scores == pytest.approx(wanted['scores'][order].numpy(), rel=1e-5)
        assert found.classes.tolist() == wanted['labels'][order].tolist()
        assert found.boxes == pytest.approx(wanted['boxes'][order].numpy().clip(
            0, [640, 480, 640, 480]), abs=1e-2)


def test_detections_of_an_unknown_kind_are_left_as_tensors() -> None:
    own = SimpleNamespace(post_process_object_detection=lambda outputs, threshold: [{
        'scores': outputs.logits[0, :, 0], 'labels': outputs.logits[0, :, 0],
        'boxes': outputs.pred_boxes[0]}])
    assert way_of(own) == '' and way_of(SimpleNamespace()) is None


def test_keys_that_nobody_reads_are_reported(folder: Path) -> None:
    (folder / 'preprocessor_config.json').write_text(json.dumps(
        {'image_processor_type': 'ViTImageProcessor', 'size': SIZE, 'gamma': 2.2}))
    assert 'gamma, which ViTImageProcessor does not use' in ' '.join(from_folder(
        str(folder)).notes)
    (folder / 'preprocessor_config.json').unlink()
    assert 'has no preprocessor_config.json' in ' '.join(from_folder(str(folder)).notes)


def test_an_archive_of_a_folder_gives_the_librarys_answer(intradp, folder: Path,
                                                          tmp_path: Path) -> None:
    """From the photograph to the logits, by the archive and by transformers alone."""
    library, out = transformers(), tmp_path / 'a.graph'
    own = library.EfficientNetImageProcessor(
        size={'height': 64, 'width': 64}, rescale_offset=True, rescale_factor=1 / 127.5)
    own.save_pretrained(folder)
    assert intradp('model', 'add', folder, '--out', out).status == 0
    card = card_from_json(load_notes(out))
    pixels, _ = as_carded(np.ascontiguousarray(PHOTO), (64, 64), card.input)
    (got,) = run_graph(load_graph(out), [torch.from_numpy(pixels.transpose(2, 0, 1).copy())[None]])
    model = library.ViTForImageClassification.from_pretrained(folder).eval()
    with torch.inference_mode():
        wanted = model(**own(images=PIL.Image.fromarray(PHOTO), return_tensors='pt')).logits
    torch.testing.assert_close(got, wanted, rtol=0.01, atol=0.01 * float(wanted.abs().max()))


@pytest.mark.parametrize('name', ['test_vit.r160_in1k', 'test_byobnet.r160_in1k', 'resnet18'])
def test_architectures_of_timm(name: str) -> None:
    """Crop, interpolation and the mode of cropping are those that timm resolves."""
    torchvision()
    timm = pytest.importorskip('timm')
    found = find_model(f'timm:{name}')
    known = timm.data.resolve_model_data_config(timm.create_model(name, pretrained=False))
    transform = timm.data.create_transform(**known, is_training=False)
    assert not found.problem
    for picture in PICTURES:
        check(ours(picture, found.shape[2:], found.card.input),
              transform(PIL.Image.fromarray(picture)).double().numpy(), found.card.input)


@pytest.mark.parametrize('known', [
    {'crop_pct': 0.9, 'crop_mode': 'center', 'interpolation': 'bicubic'},
    {'crop_pct': 1.0, 'crop_mode': 'squash', 'interpolation': 'bilinear'},
    {'crop_pct': 0.875, 'crop_mode': 'squash', 'interpolation': 'lanczos'},
    {'crop_pct': 0.95, 'crop_mode': 'center', 'interpolation': 'nearest'}])
def test_ways_to_crop_of_timm(known: dict[str, Any]) -> None:
    torchvision()
    timm = pytest.importorskip('timm')
    transform = timm.data.create_transform(input_size=(3, 64, 64), is_training=False, **known)
    found = measured(lambda picture: transform(PIL.Image.fromarray(picture))[None])
    assert found.size == (64, 64) and found.card.interpolation == known['interpolation']
    for picture in PICTURES:
        check(ours(picture, (64, 64), found.card),
              transform(PIL.Image.fromarray(picture)).double().numpy(), found.card)


@pytest.mark.parametrize('name', ['shufflenet_v2_x0_5', 'mobilenet_v3_small'])
def test_architectures_of_torchvision(name: str) -> None:
    found = find_model(f'torchvision:{name}')
    transform = torchvision().models.get_model_weights(name).DEFAULT.transforms()
    for picture in PICTURES:
        check(ours(picture, found.shape[2:], found.card.input),
              transform(PIL.Image.fromarray(picture)).double().numpy(), found.card.input)


def test_letterboxes_of_ultralytics() -> None:
    torchvision()
    augment = pytest.importorskip('ultralytics.data.augment')
    card = InputCard('letterbox', 114, interpolation='linear')
    for picture in PICTURES:
        wanted = augment.LetterBox((96, 160), auto=False)(image=np.ascontiguousarray(picture))
        assert np.array_equal(as_carded(np.ascontiguousarray(picture), (96, 160), card)[0], wanted)


@pytest.mark.parametrize(('change', 'says'), [
    (lambda x: x ** 2.2, 'another way'), (lambda x: x.mean(1, keepdim=True).expand(-1, 3, -1, -1),
                                          'mixes colours'),
    (lambda x: 1 - x, 'mixes colours'), (lambda x: x[:, :1], 'not one of 1 x 3'),
    (lambda x: x.flip(3), 'differs by'), (lambda x: (x * 4).round() / 4, 'another way')])
def test_what_is_no_scaling_is_refused(change: Any, says: str) -> None:
    def process(picture: np.ndarray) -> torch.Tensor:
        small, _ = as_carded(picture, (40, 40), InputCard())
        return change(torch.from_numpy(small.transpose(2, 0, 1).copy())[None] / 255)

    with pytest.raises(PreprocessingError, match=says):
        measured(process)


def test_weights_that_a_folder_lacks_are_not_made_up(intradp, tmp_path: Path) -> None:
    """Of a backbone that its configuration calls a classifier, the last layer would be random."""
    library = transformers()
    library.ViTModel(library.ViTConfig(**VIT)).save_pretrained(tmp_path)
    config = json.loads((tmp_path / 'config.json').read_text())
    (tmp_path / 'config.json').write_text(json.dumps(
        {**config, 'architectures': ['ViTForImageClassification']}))
    result = intradp('model', 'add', tmp_path, '--out', tmp_path / 'a.graph')
    assert result.status == 2 and 'classifier.' in result.err and 'random' in result.err
