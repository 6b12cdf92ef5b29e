# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""Images become tensors in the order and range that models expect."""
from __future__ import annotations

import cv2
import numpy as np
import pytest
import torch

from intradp_ros.cli.command_errors import CommandError
from intradp_ros.cli.inputs import load_inputs, read_image


@pytest.fixture
def picture(tmp_path):
    """Return the path of an image whose pixels are all red 200, green 100, blue 50."""
    path = tmp_path / 'picture.png'
    cv2.imwrite(str(path), np.full((6, 8, 3), (50, 100, 200), np.uint8))
    return path


def test_bytes_stay_bytes(picture):
    image = read_image(picture, torch.uint8)
    assert image.dtype == torch.uint8 and image.shape == (1, 3, 6, 8)
    assert image[0, :, 5, 7].tolist() == [200, 100, 50]


def test_floats_go_from_0_to_1(picture):
    image = read_image(picture, torch.float64)
    assert image[0, :, 0, 0].tolist() == [200 / 255, 100 / 255, 50 / 255]


def test_size_is_height_and_width(picture):
    assert read_image(picture, size=(3, 10)).shape == (1, 3, 3, 10)


def test_each_input_has_its_dtype_or_all_have_one():
    shapes, mixed = ('1x3x4x4', '1x7'), (torch.float32, torch.int64)
    assert [x.dtype for x in load_inputs(shapes, mixed, None, 0)] == list(mixed)
    assert [x.dtype for x in load_inputs(shapes, mixed[1:], None, 0)] == [torch.int64] * 2
    with pytest.raises(CommandError, match='2 inputs have 3 dtypes'):
        load_inputs(shapes, 3 * mixed[:1], None, 0)


def test_a_shape_that_no_value_may_have_is_refused_before_anything_is_made():
    for shape in ('1x3x99999999x99999999', 'x'.join(['1'] * 17)):
        with pytest.raises(CommandError, match='too large'):
            load_inputs([shape], [torch.float32], None, 0)
