# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""Examples that are made up lead to values like those of real pictures."""
from __future__ import annotations

import numpy as np
import pytest
import torch

from intradp_lab.zoo.video import frames
from intradp_ros.profiling.measure import value_encodings
from intradp_ros.runtime.models.catalogue import ModelSpec
from intradp_ros.runtime.models.example_picture import example_picture, is_picture

SHAPE = 1, 3, 144, 336


@pytest.mark.parametrize('shape, expected', [
    ((1, 3, 32, 48), True), ((2, 1, 8, 8), True), ((1, 4, 480, 640), True),
    ((1, 3, 7, 48), False), ((1, 2, 32, 48), False), ((1, 48, 3), False), ((), False)])
def test_pictures_are_known_by_their_shape(shape: tuple[int, ...], expected: bool) -> None:
    """Anything else gets noise."""
    assert is_picture(shape) == expected


@pytest.mark.parametrize('dtype', [torch.uint8, torch.float32, torch.float16, torch.int64])
@pytest.mark.parametrize('shape', [(2, 3, 32, 48), (1, 1, 8, 200), (3, 5)])
def test_examples_have_their_shape_and_dtype(shape: tuple[int, ...], dtype: torch.dtype) -> None:
    """And are the same for the same seed, others for another, and nowhere constant."""
    spec = ModelSpec('', shape, dtype)
    first = spec.example(1)
    assert first.shape == shape and first.dtype == dtype and first.unique().numel() > 1
    assert torch.equal(first, spec.example(1)) and not torch.equal(first, spec.example(2))
    if dtype is torch.float32 and is_picture(shape):
        assert first.mean().abs() < 1e-5 and (first.std() - 1).abs() < 1e-5


def test_neighbouring_rows_differ() -> None:
    """So that a row in the place of another is noticed, though surfaces are flat."""
    picture = example_picture(3, 64, 64, np.random.default_rng(0))
    assert (picture[:, 1:] != picture[:, :-1]).any(axis=(0, 2)).all()
    assert picture.min() >= 0 and picture.max() <= 255


def test_values_cross_as_small_as_those_of_a_video() -> None:
    """
    A real network, by all encodings: a cut that seems to send less than it does misleads.

    What seems larger than it is only makes a schedule unattractive; pictures
    of noise do that to the input.
    """
    model = ModelSpec('intradp_lab.zoo.hed:hed', SHAPE, torch.uint8).load()
    real, made, noise = (value_encodings(model.split, (inputs,)) for inputs in (
        _frame(), ModelSpec('', SHAPE, torch.uint8).example(),
        torch.randint(0, 256, SHAPE, dtype=torch.uint8)))
    seems = [made[v][name].ratio / timing.ratio for v, known in enumerate(real)
             for name, timing in known.items() if name in made[v]]
    assert min(seems) > 0.7 and np.abs(np.log(seems)).mean() < 0.2
    (pixels,) = model.split.graph.inputs
    assert made[pixels]['delta'].ratio < 0.7 * noise[pixels]['delta'].ratio


def _frame() -> torch.Tensor:
    picture = next(frames(1, (SHAPE[3], SHAPE[2])))
    return torch.from_numpy(np.ascontiguousarray(picture.transpose(2, 0, 1)))[None]
