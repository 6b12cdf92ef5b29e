# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""Annotated output pictures."""
from __future__ import annotations

from pathlib import Path

import cv2
import numpy as np
import pytest

from intradp_lab.report.captioned_image import grey_map, save, side_by_side

RED = np.full((40, 60, 3), (200, 10, 10), np.uint8)
RAMP = np.linspace(0, 1, 60, dtype=np.float32)[None].repeat(40, 0)


def test_maps_become_grey() -> None:
    picture = grey_map(RAMP[None, None])
    assert picture.shape == (40, 60, 3) and picture.dtype == np.uint8
    assert picture[0, 0].tolist() == [0, 0, 0] and picture[0, -1].tolist() == [255, 255, 255]
    assert grey_map([[-1.0, 2.0]])[0, :, 0].tolist() == [0, 255]


@pytest.mark.parametrize('shape', [(3, 4, 5), (2, 1, 4, 5), (7,)])
def test_other_shapes_are_no_maps(shape: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match='one map of height x width'):
        grey_map(np.zeros(shape))


def contains(picture: np.ndarray, part: np.ndarray) -> bool:
    distance = cv2.matchTemplate(picture, part, cv2.TM_SQDIFF)
    return bool(distance.min() < 1)


def test_pictures_and_text_do_not_cover_each_other() -> None:
    bare = side_by_side([('', RED), ('', grey_map(RAMP))], [''])
    full = side_by_side([('input', RED), ('edges', grey_map(RAMP))],
                        ['shared: 196 ms, and a caption that is much too long for so small a row'])
    assert full.shape == bare.shape
    for part in (RED, grey_map(RAMP)):
        assert contains(full, part)
    # The text is there, and keeps away from the border.
    assert (full != bare).any(2).sum() > 200
    assert (full[:, -4:] == 255).all() and (full[-1:] == 255).all()


def test_heights_must_agree() -> None:
    with pytest.raises(ValueError, match=r'one height, got \[30, 40\]'):
        side_by_side([('input', RED), ('edges', RED[:30])], [])


def test_saved_pictures_keep_their_colours(tmp_path: Path) -> None:
    path = tmp_path / 'out' / 'frame.png'
    save(path, RED)
    assert cv2.imread(str(path))[0, 0].tolist() == [10, 10, 200]


def test_a_failed_save_is_reported(tmp_path: Path) -> None:
    (tmp_path / 'frame.png').mkdir()
    with pytest.raises(OSError, match='Is a directory'):
        save(tmp_path / 'frame.png', RED)
