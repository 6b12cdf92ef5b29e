# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""Pretrained networks on photographs: split, they see the same things as unsplit."""
from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pretrained
import pytest
from sharing import sharing_pair
import torch
from torch import nn
from torch.nn import functional as F

from intradp_lab.zoo.coco import yolo11n_seg
from intradp_lab.zoo.hed import hed
from intradp_lab.zoo.mobilenet_v2 import mobilenet_v2
from intradp_lab.zoo.wheel_files import MissingWheelError
from intradp_ros.graph.trees import rebuild_outputs
from intradp_ros.runtime.models.model import share_module, SharedModel
from intradp_ros.split.checks.verify import run_in_parts
from intradp_ros.systems.sharing.strategies import (
    SHARED,
)

Answer = dict[str, torch.Tensor]
"""What a user would read from the outputs; integers must be the same, floats close."""

ESPRESSO, PERSON, BUS = 967, 0, 5


@dataclass(frozen=True)
class Case:
    """A network, a photograph, how to read the outputs, and what must be seen."""

    build: Callable[[], nn.Module]
    picture: Callable[[], torch.Tensor]
    read: Callable[[Any], Answer]
    sees: Callable[[Answer], bool]


def best_classes(logits: torch.Tensor) -> Answer:
    best = logits.softmax(1)[0].topk(5)
    return {'classes': best.indices, 'shares': best.values}


def edges(dense: torch.Tensor) -> Answer:
    return {'strength': dense}


def sees_some_edges(answer: Answer) -> bool:
    return 0.1 < (answer['strength'] > 0.5).double().mean().item() < 0.6


def key_points(outputs: tuple[torch.Tensor, ...]) -> Answer:
    """Return pixels that are likelier than any within 2 pixels, with score and descriptor."""
    features, logits, reliability = outputs
    likely = F.pixel_shuffle(logits.softmax(1)[:, :64], 8)
    found = (likely == F.max_pool2d(likely, 5, 1, 2)) & (likely > 0.05)
    places = found[0, 0].nonzero()
    rows, columns = places.unbind(1)
    scores = likely[0, 0, rows, columns] * reliability[0, 0, rows // 8, columns // 8]
    return {'places': places, 'scores': scores,
            'descriptors': F.normalize(features, dim=1)[0, :, rows // 8, columns // 8]}


def objects(outputs: Any) -> Answer:
    """Return classes, boxes (middle and size in pixels) and masks above 0.5, no two alike."""
    (found, masks), _ = outputs
    boxes, scores, weights = found[0].T.split([4, 80, 32], dim=1)
    best, kinds = scores.max(1)
    kept: list[int] = []
    for k in best.argsort(descending=True).tolist():
        if best[k] > 0.5 and all(overlap(boxes[k], boxes[j]) < 0.6 for j in kept):
            kept.append(k)
    covered = (weights[kept] @ masks[0].flatten(1)).sigmoid()
    return {'classes': kinds[kept], 'boxes': boxes[kept], 'scores': best[kept],
            'masks': (covered > 0.5).sum(1)}


def overlap(a: torch.Tensor, b: torch.Tensor) -> float:
    """Return the area of the intersection of two boxes, as a share of the union's."""
    low = torch.maximum(a[:2] - a[2:] / 2, b[:2] - b[2:] / 2)
    high = torch.minimum(a[:2] + a[2:] / 2, b[:2] + b[2:] / 2)
    common = (high - low).clamp(min=0).prod()
    return (common / (a[2:].prod() + b[2:].prod() - common)).item()


def sees_espresso(answer: Answer) -> bool:
    return answer['classes'][0].item() == ESPRESSO and answer['shares'][0].item() > 0.9


def sees_bus_and_people(answer: Answer) -> bool:
    kinds = answer['classes'].tolist()
    return kinds.count(BUS) == 1 and kinds.count(PERSON) >= 3


CASES = {
    'mobilenet_v2': Case(mobilenet_v2, lambda: pretrained.photograph('coffee', 224, 224),
                         best_classes, sees_espresso),
    'efficientnet_lite0': Case(
        pretrained.efficientnet_lite0, lambda: pretrained.photograph('coffee', 224, 224),
        best_classes, sees_espresso),
    'hed': Case(hed, lambda: pretrained.photograph('astronaut', 128, 160), edges,
                sees_some_edges),
    'xfeat': Case(pretrained.xfeat, lambda: pretrained.photograph('astronaut', 256, 320),
                  key_points, lambda answer: len(answer['places']) > 200),
    'yolo11n_seg': Case(yolo11n_seg, lambda: pretrained.bus(320, 256),
                        objects, sees_bus_and_people),
}


@pytest.fixture(scope='module', params=CASES)
def prepared(request: pytest.FixtureRequest) -> tuple[SharedModel, torch.Tensor, Case, Answer]:
    """Return a captured network, its photograph, and what the network itself sees in it."""
    case = CASES[request.param]
    try:
        model, picture = case.build(), case.picture()
    except MissingWheelError as error:
        pytest.skip(str(error))
    with torch.inference_mode():
        wanted = case.read(model(picture))
    return share_module(model, (picture,)), picture, case, wanted


def assert_same(answer: Answer, wanted: Answer) -> None:
    for name, expected in wanted.items():
        tolerance = 1e-3 * expected.abs().max().item() if expected.is_floating_point() else 0.0
        torch.testing.assert_close(answer[name], expected, rtol=0.0, atol=tolerance)


def test_unsplit_network_sees_what_is_there(
        prepared: tuple[SharedModel, torch.Tensor, Case, Answer]) -> None:
    _, _, case, wanted = prepared
    assert case.sees(wanted)


@pytest.mark.parametrize('seed', range(3))
def test_sees_the_same_in_random_parts(
        prepared: tuple[SharedModel, torch.Tensor, Case, Answer], seed: int) -> None:
    shared, picture, case, wanted = prepared
    outputs = run_in_parts(shared.split, [picture], 3, seed)
    assert_same(case.read(rebuild_outputs(shared.split.graph, outputs)), wanted)


def test_sees_the_same_on_two_sides(
        prepared: tuple[SharedModel, torch.Tensor, Case, Answer]) -> None:
    shared, picture, case, wanted = prepared
    with sharing_pair(shared) as pair:
        outcome = pair.robot.infer((picture,), strategy=SHARED)
    assert outcome.stats.shared
    assert_same(case.read(outcome.outputs), wanted)
