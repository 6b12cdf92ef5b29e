# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""Pictures in inputs of another form, and answers back in the picture's pixels."""
from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
import numpy as np
import pytest

from intradp_ros.perception.card import RESIZES
from intradp_ros.perception.view import fitted, place, Region

sizes = st.tuples(st.integers(8, 90), st.integers(8, 90))


def marked(height: int, width: int) -> np.ndarray:
    """Return a picture whose red and green say where a pixel is."""
    rows, columns = np.mgrid[:height, :width]
    return np.stack((255 * columns / width, 255 * rows / height, 0 * rows), -1).astype(np.uint8)


@given(sizes, sizes, st.sampled_from(RESIZES))
def test_every_pixel_comes_back_to_its_place(source: tuple[int, int], target: tuple[int, int],
                                             resize: str) -> None:
    """What a pixel of the input shows is what stands where the view says."""
    rgb = marked(*source)
    shown, view = fitted(rgb, target, resize, 0)
    assert shown.shape == (*target, 3)
    rows, columns = np.mgrid[:target[0], :target[1]]
    places = view.points_back(np.stack((columns, rows), -1) + 0.5)
    inside = ((places > 0) & (places < source[::-1])).all(-1)
    assert inside.any()
    wanted = 255 * places / source[::-1]
    error = np.abs(shown[..., :2] - wanted)[inside]
    step = 255 / np.array(source[::-1]) * np.maximum(1, 1 / np.array(view.scale))
    assert (error <= 2 * step + 2).all()


def test_a_letterbox_shows_all_and_a_crop_fills_the_input() -> None:
    white = np.full((40, 80, 3), 255, np.uint8)
    boxed, _ = fitted(white, (64, 64), 'letterbox', 9)
    assert (boxed[16:48] == 255).all() and (boxed[:16] == 9).all() and (boxed[48:] == 9).all()
    cropped, view = fitted(marked(40, 80), (64, 64), 'crop', 9)
    assert view.points_back(np.array([[0, 0], [64, 64]])) == pytest.approx(
        np.array([[20, 0], [60, 40]]))
    assert abs(int(cropped[32, 0, 0]) - 64) < 4


def test_boxes_come_back_and_are_cut_to_the_picture() -> None:
    view = place((40, 80), (64, 64), 'letterbox')
    boxes = view.boxes_back(np.array([[0.0, 16, 64, 48], [-9, 0, 32, 99]]))
    assert boxes == pytest.approx(np.array([[0, 0, 80, 40], [0, 0, 40, 40]]))


@pytest.mark.parametrize('resize', RESIZES)
@pytest.mark.parametrize('shrink', [1, 4])
def test_maps_come_back(resize: str, shrink: int) -> None:
    """A map as coarse as may be, made of what the input shows; nothing where it shows nothing."""
    rgb = marked(48, 96)
    shown, view = fitted(rgb, (64, 64), resize, 0)
    coarse = shown[shrink // 2::shrink, shrink // 2::shrink, 0].astype(np.float32)
    back = view.map_back(coarse, np.nan, smooth=True)
    assert back.shape == (48, 96)
    seen = np.isfinite(back)
    assert seen.mean() == pytest.approx(0.5 if resize == 'crop' else 1.0, abs=0.02)
    assert np.abs(back - rgb[..., 0])[seen].max() < 8 * shrink
    assert (view.map_back(coarse.astype(np.uint16), 7, smooth=False)[~seen] == 7).all()


def test_a_region_is_all_that_is_seen() -> None:
    rgb = marked(50, 60)
    shown, view = fitted(rgb, (20, 20), 'stretch', 0, Region(10, 5, 20, 20))
    assert np.array_equal(shown, rgb[5:25, 10:30])
    assert view.boxes_back(np.array([[0, 0, 20, 20]])) == pytest.approx(
        np.array([[10, 5, 30, 25]]))
    dense = view.map_back(np.ones((20, 20), np.float32), np.nan, smooth=True)
    assert np.isfinite(dense).sum() == 400 and np.isfinite(dense[5:25, 10:30]).all()
    with pytest.raises(ValueError, match='outside of a picture of 60 x 50'):
        fitted(rgb, (20, 20), 'stretch', 0, Region(60, 0, 5, 5))
