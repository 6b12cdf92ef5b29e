# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""The classifier knows what is on real pictures."""
from __future__ import annotations

import cv2
import numpy as np
import pytest
import torch

from intradp_lab.zoo.mobilenet_v2 import mobilenet_v2
from intradp_lab.zoo.wheel_files import MissingWheelError

data = pytest.importorskip('skimage.data')

ESPRESSO, EGYPTIAN_CAT, TABBY, TIGER_CAT = 967, 285, 281, 282


@pytest.fixture(scope='module')
def classifier() -> torch.nn.Module:
    try:
        return mobilenet_v2()
    except MissingWheelError as error:
        pytest.skip(str(error))


def centre(picture: np.ndarray, size: int = 224) -> torch.Tensor:
    height, width = picture.shape[:2]
    side = min(height, width)
    top, left = (height - side) // 2, (width - side) // 2
    square = cv2.resize(picture[top:top + side, left:left + side], (size, size),
                        interpolation=cv2.INTER_AREA)
    return torch.from_numpy(square).permute(2, 0, 1)[None]


@torch.inference_mode()
def test_recognises_coffee(classifier: torch.nn.Module) -> None:
    logits = classifier(centre(data.coffee()))
    assert logits.shape == (1, 1000)
    assert logits.argmax().item() == ESPRESSO
    assert logits.softmax(1)[0, ESPRESSO].item() > 0.95


@torch.inference_mode()
def test_recognises_a_cat(classifier: torch.nn.Module) -> None:
    best = classifier(centre(data.cat()))[0].topk(3).indices.tolist()
    assert best == [EGYPTIAN_CAT, TIGER_CAT, TABBY]


@torch.inference_mode()
def test_other_sizes_run(classifier: torch.nn.Module) -> None:
    logits = classifier(centre(data.coffee(), 192))
    assert logits.argmax().item() == ESPRESSO


def test_is_ready_to_run(classifier: torch.nn.Module) -> None:
    assert not classifier.training
    assert sum(value.numel() for value in classifier.parameters()) == 3_504_872
