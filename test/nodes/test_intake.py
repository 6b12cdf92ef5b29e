# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""What a model of several cameras takes, and what is refused."""
from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from intradp_ros.nodes.sensors.image_messages import rgb_to_image
from intradp_ros.nodes.sensors.intake import INTAKE, Intake, intake_for
from intradp_ros.perception.card import InputCard
from intradp_ros.runtime.models.model import share_module


class Stereo(nn.Module):
    """Two images to one map."""

    def forward(self, left: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
        return left.float() - right.float()


def intake(model: nn.Module, *shapes: tuple[int, ...], cameras: tuple[str, ...]) -> Intake:
    given: dict[str, Any] = {p.name: p.default for p in INTAKE}
    shared = share_module(model, tuple(torch.zeros(s, dtype=torch.uint8) for s in shapes))
    return intake_for(shared, {**given, 'cameras': [*cameras], 'image_transport': 'raw'},
                      InputCard(), None)


def pictures(count: int) -> list[np.ndarray]:
    return [np.full((8, 12, 3), 10 * n, np.uint8) for n in range(count)]


class Body(nn.Module):
    """Pixels to their doubles."""

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        return image.float() * 2


def test_pictures_of_a_batch() -> None:
    taken = intake(Body(), (3, 3, 8, 12), cameras=('a', 'b', 'c'))
    assert taken.topics == ('a/image', 'b/image', 'c/image')
    (batch,), scenes = taken.inputs([rgb_to_image(p) for p in pictures(3)])
    assert batch.shape == (3, 3, 8, 12) and len(scenes) == 3
    assert [int(image.max()) for image in batch] == [0, 10, 20]
    part = taken.part({'y': batch}, 1)['y']
    assert part.shape == (1, 3, 8, 12) and int(part.max()) == 10


def test_pictures_that_are_an_input_each() -> None:
    shape = (1, 3, 8, 12)
    taken = intake(Stereo(), shape, shape, cameras=('left', 'right'))
    tensors, _ = taken.inputs([rgb_to_image(p) for p in pictures(2)])
    assert [int(t.max()) for t in tensors] == [0, 10]
    assert all(t.shape == shape for t in tensors)


def test_one_camera_has_the_plain_topic() -> None:
    assert intake(Body(), (1, 3, 8, 12), cameras=('',)).topics == ('image',)


@pytest.mark.parametrize(('shape', 'cameras', 'says'), [
    ((2, 3, 8, 12), ('a', 'b', 'c'), '3 cameras go into 3 x 3'),
    ((1, 3, 8, 12), ('a', 'b'), '2 cameras go into 2 x 3'),
    ((2, 3, 8, 12), ('',), 'set cameras'),
    ((2, 3, 8, 12), ('a', 'a'), 'different names'),
    ((2, 3, 8, 12), ('a/b', 'c'), 'letters, digits')])
def test_what_does_not_fit_is_refused(shape: tuple[int, ...], cameras: tuple[str, ...],
                                      says: str) -> None:
    with pytest.raises(ValueError, match=says):
        intake(Body(), shape, cameras=cameras)
