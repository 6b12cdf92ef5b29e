# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""Frames of the real video, and what happens without it."""
from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from intradp_lab.zoo.video import BIKES, frames, WHEEL
from intradp_lab.zoo.wheel_files import MissingWheelError, wheel_file


@pytest.fixture(scope='module', autouse=True)
def video() -> Path:
    try:
        return wheel_file(WHEEL, BIKES)
    except MissingWheelError as error:
        pytest.skip(str(error))


def test_frames_are_moving_pictures() -> None:
    pictures = list(frames(3, every=40))
    assert [picture.shape for picture in pictures] == [(272, 640, 3)] * 3
    assert all(picture.dtype == np.uint8 for picture in pictures)
    assert np.abs(pictures[0].astype(int) - pictures[2]).mean() > 10


def test_frames_are_red_green_blue() -> None:
    # A red car enters at the right border of the 26th frame.
    car = list(frames(2, every=25))[1][20:60, 600:].reshape(-1, 3).mean(0)
    assert car[0] > car[1] + 20 and car[0] > car[2] + 20


def test_frames_are_scaled() -> None:
    assert next(frames(1, (320, 136))).shape == (136, 320, 3)


def test_a_short_video_starts_again() -> None:
    # The video has 250 frames.
    pictures = list(frames(3, (64, 32), every=125))
    assert np.array_equal(pictures[0], pictures[2])
    assert not np.array_equal(pictures[0], pictures[1])


def test_not_a_video(tmp_path: Path) -> None:
    path = tmp_path / 'notes.mp4'
    path.write_text('no video')
    with pytest.raises(ValueError, match=r'decodes no frame of .*notes\.mp4'):
        next(frames(1, path=path))


def test_missing_wheel_is_named() -> None:
    with pytest.raises(MissingWheelError, match='pip install .*no-such-wheel-of-ours'):
        wheel_file('no-such-wheel-of-ours', 'weights.bin')


def test_missing_file_of_a_wheel_is_named() -> None:
    with pytest.raises(MissingWheelError, match=r"'numpy' lacks weights\.bin"):
        wheel_file('numpy', 'weights.bin')
