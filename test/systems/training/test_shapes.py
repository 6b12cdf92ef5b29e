# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""The task to begin with: it is learnt, and its data are drawn in whole numbers."""
from __future__ import annotations

import torch

from intradp_lab.training.one_process import train_alone
from intradp_ros.systems.training.shapes import SHAPES, shapes, shapes_data, SIDE


def test_the_shapes_are_learnt() -> None:
    task = shapes()
    module = train_alone(task).module.eval()
    inputs, targets = task.check.take(range(len(task.check)))
    with torch.no_grad():
        assert (module(*inputs).argmax(1) == targets).float().mean() > 0.9


def test_pictures_are_whole_numbers_of_all_classes() -> None:
    for data in shapes_data():
        images, targets = data.take(range(len(data)))
        pixels = 256 * images[0]
        assert pixels.shape[1:] == (1, SIDE, SIDE) and (pixels == pixels.round()).all()
        assert 0 <= pixels.min() < pixels.max() <= 255
        assert targets.bincount().tolist() == [len(data) // len(SHAPES)] * len(SHAPES)
