# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""The plot of latency against energy shows the front and every system."""
from __future__ import annotations

from pathlib import Path

import cv2
import numpy as np
import pytest

from intradp_ros.report.front_plot import draw_front
from intradp_ros.report.palette import STRATEGIES

FRONT = [(200.0, 3.0), (300.0, 2.0), (450.0, 1.5)]
SYSTEMS = {'local': (800.0, 11.0), 'offload': (450.0, 1.5), 'shared': (200.0, 3.0)}


def centre(path: Path, name: str) -> np.ndarray:
    """Return the mean row and column of the pixels of a system's colour, above the legend."""
    picture = cv2.imread(str(path)).astype(int)[:640]
    colour = STRATEGIES[name]
    wanted = [int(colour[i:i + 2], 16) for i in (5, 3, 1)]
    return np.argwhere(np.abs(picture - wanted).max(2) < 4).mean(0)


def test_systems_are_where_their_figures_are(tmp_path: Path) -> None:
    path = tmp_path / 'front.png'
    draw_front(FRONT, SYSTEMS, path, 'HED')
    local, offload, shared = (centre(path, name) for name in SYSTEMS)
    assert local[1] > offload[1] > shared[1]  # further right: slower
    assert local[0] < shared[0] < offload[0]  # further up: more joules


@pytest.mark.parametrize('front, message', [
    ([], 'at least one point'), ([(-1.0, 2.0)], 'below 0'), ([(1.0, float('nan'))], 'below 0')])
def test_impossible_fronts_are_refused(tmp_path: Path, front: list[tuple[float, float]],
                                       message: str) -> None:
    with pytest.raises(ValueError, match=message):
        draw_front(front, {}, tmp_path / 'front.png', 'HED')
