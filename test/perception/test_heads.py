# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""Outputs of models to answers, in the picture's pixels."""
from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st
import numpy as np
import pytest
import torch
from torch import nn

from intradp_ros.perception.card import CardError, HeadCard, ModelCard
from intradp_ros.perception.decode import decode
from intradp_ros.perception.graph_wrappers import BestBoxes, LikeliestClasses, Normalised
from intradp_ros.perception.heads.detections import distinct
from intradp_ros.perception.heads.named_outputs import HeadError, named
from intradp_ros.perception.overlay import overlay
from intradp_ros.perception.predictions import Classes, Depth, Detections, KeyPoints, LabelMap
from intradp_ros.perception.view import place
from intradp_ros.runtime.models.model import share_module
from intradp_ros.split.checks.verify import run_in_parts

TWICE = place((40, 80), (80, 160), 'stretch')


def test_outputs_keep_their_names() -> None:
    a, b, c = torch.zeros(1), torch.ones(1), torch.ones(2)
    assert list(named({'boxes': a, 'scores': b})) == ['boxes', 'scores']
    assert list(named((a, [b, c]))) == ['output_0', 'output_1', 'output_2']
    assert list(named({'aux': {'out': a}, 'out': b, 'number': 3})) == ['aux.out', 'out']
    assert list(named([{'x': a}, {'x': b}])) == ['0.x', '1.x']
    assert list(named((a, b), ('boxes', 'scores'))) == ['boxes', 'scores']
    with pytest.raises(CardError, match='names 1 outputs'):
        named((a, b), ('boxes',))


def boxes_of(*rows: tuple[float, ...]) -> torch.Tensor:
    return torch.tensor([rows])


def test_objects_lie_in_the_pictures_pixels_and_stand_alone() -> None:
    """The second overlaps the first, the third is of another class, the fourth is not sure."""
    outputs = {
        'boxes': boxes_of((20, 20, 60, 60), (22, 20, 62, 60), (20, 20, 60, 60), (0, 0, 9, 9)),
        'scores': torch.tensor([[0.9, 0.8, 0.7, 0.1]]), 'classes': torch.tensor([[1, 1, 0, 1]])}
    found = decode(outputs, HeadCard('detections'), TWICE)
    assert isinstance(found, Detections)
    assert found.boxes == pytest.approx(np.array([[10, 10, 30, 30]] * 2))
    assert found.classes.tolist() == [1, 0]
    assert found.scores == pytest.approx(np.array([0.9, 0.7]))
    every = decode(outputs, HeadCard('detections', score_threshold=0.0, iou_threshold=1.0,
                                     max_detections=3), TWICE)
    assert isinstance(every, Detections) and len(every.boxes) == 3


def test_other_forms_of_boxes_say_the_same() -> None:
    """Middle and size; shares of the input; scores by class; DETR's logits with no object last."""
    wanted = np.array([[10, 10, 30, 30]])
    middle = boxes_of((40, 40, 40, 40))
    scores = torch.tensor([[[0.1, 0.8]]])
    shares = middle / torch.tensor([160.0, 80, 160, 80])
    logits = torch.tensor([[[0.0, 5.0, 1.0]]])
    for outputs, card in (
            ({'boxes': middle, 'scores': scores}, HeadCard('detections', form='xywh')),
            ({'pred_boxes': shares, 'logits': logits},
             HeadCard('detections', form='xywh', relative=True, iou_threshold=1.0))):
        found = decode(outputs, card, TWICE)
        assert isinstance(found, Detections)
        assert found.boxes == pytest.approx(wanted) and found.classes.tolist() == [1]
    nothing = decode({'boxes': shares, 'logits': torch.tensor([[[0.0, 1.0, 9.0]]])},
                     HeadCard('detections', form='xywh', relative=True), TWICE)
    assert isinstance(nothing, Detections) and len(nothing.boxes) == 0


def test_masks_cover_their_box_the_surest_on_top() -> None:
    masks = torch.ones(1, 1, 20, 40)
    masks[..., 30:] = -1
    outputs = {'boxes': boxes_of((0, 0, 80, 80), (40, 0, 160, 80)),
               'scores': torch.tensor([[0.5, 0.9]]), 'classes': torch.tensor([[3, 4]]),
               'weights': torch.ones(1, 2, 1), 'masks': masks}
    found = decode(outputs, HeadCard('detections', iou_threshold=1.0), TWICE)
    assert isinstance(found, Detections)
    assert found.instances is not None and found.labels is not None
    assert found.instances.shape == (40, 80)
    assert (found.instances[:, :20] == 2).all() and (found.labels[:, :20] == 4).all()
    assert (found.instances[:, 20:60] == 1).all() and (found.labels[:, 20:60] == 5).all()
    assert (found.instances[:, 60:] == 0).all() and (found.labels[:, 60:] == 0).all()


@pytest.mark.parametrize('dtype', [torch.float16, torch.bfloat16])
def test_outputs_may_be_half_precision(dtype: torch.dtype) -> None:
    outputs = {'boxes': boxes_of((0, 0, 80, 80)).to(dtype),
               'scores': torch.tensor([[0.5]], dtype=dtype),
               'classes': torch.tensor([[3]])}
    found = decode(outputs, HeadCard('detections'), TWICE)
    assert isinstance(found, Detections)
    assert found.classes.tolist() == [3] and found.boxes.tolist() == [[0, 0, 40, 40]]


def test_more_objects_than_a_byte_counts() -> None:
    count = 300
    boxes = boxes_of(*((160 * k / count, 0, 160 * (k + 1) / count, 80) for k in range(count)))
    outputs = {'boxes': boxes, 'scores': torch.linspace(1, 0.6, count)[None],
               'classes': torch.arange(count)[None], 'weights': torch.ones(1, count, 1),
               'masks': torch.ones(1, 1, 20, 40)}
    found = decode(outputs, HeadCard('detections', max_detections=count), TWICE)
    assert isinstance(found, Detections) and found.instances is not None
    assert len(found.boxes) == count and found.instances.max() > 255
    labels = found.labels
    assert labels is not None
    assert labels.tolist() == (found.classes + 1)[found.instances.astype(int) - 1].tolist()


def test_key_points_of_objects() -> None:
    outputs = {'boxes': boxes_of((0, 0, 80, 80)), 'scores': torch.tensor([[0.5]]),
               'classes': torch.tensor([[0]]), 'points': torch.tensor([[[20.0, 40, 0.7] * 2]])}
    found = decode(outputs, HeadCard('detections'), TWICE)
    assert isinstance(found, Detections) and found.points is not None
    assert found.points == pytest.approx(np.array([[[10, 20, 0.7]] * 2]))


def test_classes_of_a_picture() -> None:
    logits = torch.tensor([[0.0, 3.0, 2.0, -1.0]])
    found = decode({'output_0': logits}, HeadCard('classification', softmax=True, max_detections=2,
                                                  score_threshold=0.0), TWICE)
    assert isinstance(found, Classes) and found.classes.tolist() == [1, 2]
    assert found.scores == pytest.approx(logits.softmax(1)[0, [1, 2]].numpy())


def test_labels_from_numbers_and_logits_are_the_same() -> None:
    logits = torch.randn(1, 5, 20, 40, generator=torch.Generator().manual_seed(1))
    by_logits = decode({'out': logits}, HeadCard('segmentation'), TWICE)
    by_number = decode({'labels': logits.argmax(1).to(torch.uint8)}, HeadCard('segmentation'),
                       TWICE)
    assert isinstance(by_logits, LabelMap) and isinstance(by_number, LabelMap)
    assert np.array_equal(by_logits.labels, by_number.labels)
    assert np.array_equal(by_number.labels[::2, ::2], logits.argmax(1)[0].numpy())


def test_a_single_class_is_where_it_is_likelier_than_not() -> None:
    logits = torch.tensor([[[[-3.0, 0.5], [2.0, -0.1]]]])
    found = decode({'out': logits}, HeadCard('segmentation'), place((2, 2), (2, 2), 'stretch'))
    inside = LikeliestClasses(nn.Identity())(logits)['labels']
    assert isinstance(found, LabelMap) and found.labels.tolist() == [[0, 1], [1, 0]]
    assert inside.tolist() == [found.labels.tolist()]
    with pytest.raises(CardError, match='background,road'):
        ModelCard(head=HeadCard('segmentation'), labels=('road',))


def test_depth_in_a_letterbox() -> None:
    view = place((40, 80), (80, 80), 'letterbox')
    found = decode({'depth': torch.full((1, 1, 20, 20), 3.0)}, HeadCard('depth'), view)
    assert isinstance(found, Depth) and found.metres.dtype == np.float32
    assert found.metres.shape == (40, 80) and (found.metres == 3).all()


def test_points_from_heat() -> None:
    heat = torch.zeros(1, 2, 20, 40)
    heat[0, 1, 5, 8] = 0.9
    found = decode({'heat': heat}, HeadCard('key_points'), TWICE)
    assert isinstance(found, KeyPoints) and found.numbers.tolist() == [1]
    assert found.points == pytest.approx(np.array([[17, 11, 0.9]]))


@pytest.mark.parametrize(('kind', 'outputs', 'says'), [
    ('detections', {'x': torch.zeros(1)}, "reads the output 'scores'; the model has x"),
    ('detections', {'scores': torch.zeros(1, 3, 2), 'boxes': torch.zeros(1, 2, 4)}, '3 scores'),
    ('detections', {'scores': torch.zeros(2, 3, 2), 'boxes': torch.zeros(1, 2, 4)}, 'batch 1'),
    ('segmentation', {'x': torch.zeros(1, 3)}, 'has the shape 1x3'),
    ('segmentation', {'labels': torch.full((1, 2, 2), -1)}, 'classes from -1'),
    ('depth', {'x': torch.zeros(1, 2, 4, 4)}, 'one map'),
    ('classification', {}, "'scores'"), ('key_points', {'x': torch.zeros(1, 9)}, '4 dimensions')])
def test_outputs_that_do_not_fit_are_reported(kind: str, outputs: dict[str, torch.Tensor],
                                          says: str) -> None:
    with pytest.raises(HeadError, match=says):
        decode(outputs, HeadCard(kind), TWICE)


@given(st.integers(0, 2**32 - 1), st.sampled_from([0.0, 0.3, 0.7]))
def test_no_two_kept_boxes_overlap(seed: int, overlap: float) -> None:
    """And none is left out that no surer one of its class overlaps (by brute force)."""
    chance = np.random.default_rng(seed)
    corners = chance.uniform(0, 10, (30, 2))
    boxes = np.concatenate([corners, corners + chance.uniform(0, 6, (30, 2))], 1)
    scores, classes = chance.uniform(size=30), chance.integers(0, 2, 30)

    def shared(a: Any, b: Any) -> float:
        low, high = np.maximum(a[:2], b[:2]), np.minimum(a[2:], b[2:])
        common = (high - low).clip(0).prod()
        return float(common / ((a[2:] - a[:2]).prod() + (b[2:] - b[:2]).prod() - common))

    wanted: list[int] = []
    for k in np.argsort(-scores):
        if all(classes[j] != classes[k] or shared(boxes[j], boxes[k]) <= overlap for j in wanted):
            wanted.append(int(k))
    assert distinct(boxes, scores, classes, overlap, 100).tolist() == wanted
    assert distinct(boxes, scores, classes, overlap, 3).tolist() == wanted[:3]


@pytest.mark.parametrize('value', [np.nan, np.inf])
def test_numbers_that_are_none_are_left_out(value: float) -> None:
    outputs = {'boxes': boxes_of((value, 0, 8, 8), (0, 0, 8, 8), (0, 0, 8, 8)),
               'scores': torch.tensor([[0.9, np.nan, 0.8]]), 'classes': torch.tensor([[0, 0, 0]])}
    found = decode(outputs, HeadCard('detections'), TWICE)
    assert isinstance(found, Detections) and found.scores == pytest.approx([0.8])
    outputs['boxes'][0, 0] = torch.tensor([8.0, 8, 0, 0])  # nothing lies between its corners
    found = decode(outputs, HeadCard('detections'), TWICE)
    assert isinstance(found, Detections) and found.scores == pytest.approx([0.8])


class Raw(nn.Module):
    """A detector of two classes with masks as YOLO's are: convolutions, then all cells."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(2)
        self.found = nn.Conv2d(3, 4 + 2 + 6, 3, 4, 1)
        self.masks = nn.Conv2d(3, 6, 3, 2, 1)

    def forward(self, image: torch.Tensor) -> Any:
        found = self.found(image).flatten(2)
        return torch.cat((found[:, :4] * 30, found[:, 4:6].sigmoid(), found[:, 6:]), 1), \
            self.masks(image)


def test_the_part_inside_is_shared_and_says_what_the_raw_model_does() -> None:
    """Normalising and choosing are operators like any other; the rest is exact besides."""
    raw = Raw().eval()
    inside = BestBoxes(Normalised(raw, (0.4, 0.5, 0.6), (0.2, 0.3, 0.4)), 2, 8)
    image = torch.randint(0, 256, (1, 3, 32, 48), dtype=torch.uint8)
    mean, deviation = (torch.tensor(x).view(1, 3, 1, 1) for x in ((0.4, 0.5, 0.6),
                                                                  (0.2, 0.3, 0.4)))
    with torch.inference_mode():
        found, masks = raw((image / 255 - mean) / deviation)
        best = inside(image)
    scores, classes = found[0, 4:6].max(0)
    places = scores.argsort(descending=True)[:8]
    torch.testing.assert_close(best['boxes'][0], found[0, :4, places].T)
    torch.testing.assert_close(best['scores'][0], scores[places])
    assert torch.equal(best['classes'][0], classes[places])
    torch.testing.assert_close(best['weights'][0], found[0, 6:, places].T)
    torch.testing.assert_close(best['masks'], masks)
    shared = share_module(inside, (image,))
    parts = named(dict(zip(best, run_in_parts(shared.split, [image], 3, 1))))
    for name, tensor in best.items():
        torch.testing.assert_close(parts[name], tensor)


def test_likeliest_classes_cross_as_bytes() -> None:
    model = LikeliestClasses(Normalised(nn.Conv2d(3, 7, 1)))
    labels = model(torch.zeros(1, 3, 8, 8, dtype=torch.uint8))['labels']
    assert labels.dtype is torch.uint8 and labels.shape == (1, 8, 8)
    with pytest.raises(CardError, match='four dimensions'):
        LikeliestClasses(nn.Flatten())(torch.zeros(1, 3, 8, 8))


@pytest.mark.parametrize('answer', [
    Detections(np.array([[5.0, 5, 30, 30]]), np.array([0.9]), np.array([1]),
               np.array([[[9, 9, 0.9]]]), np.eye(40, 80, dtype=np.uint16)),
    Classes(np.array([3]), np.array([0.5])), LabelMap(np.eye(40, 80, dtype=np.uint16)),
    Depth(np.linspace(1, 5, 3200, dtype=np.float32).reshape(40, 80)),
    KeyPoints(np.array([[9, 9, 0.9]]), np.array([0]))], ids=lambda a: type(a).__name__)
def test_answers_are_drawn_over_a_copy(answer: Any) -> None:
    rgb = np.full((40, 80, 3), 100, np.uint8)
    drawn = overlay(rgb, answer, ModelCard(labels=('a', 'bé')))
    assert drawn.shape == rgb.shape and (rgb == 100).all() and (drawn != 100).any()
