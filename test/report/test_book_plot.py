# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""The plot of a schedule book shows its curves and refuses what a logarithm cannot."""
from __future__ import annotations

from pathlib import Path

import cv2
import numpy as np
import pytest

from intradp_ros.report.book_plot import draw_book
from intradp_ros.report.palette import STRATEGIES

GRID = np.geomspace(1, 400, 20)
CURVES = {
    'local': [(mbps, 740.0) for mbps in GRID],
    'offload': [(mbps, 270 + 2430 / mbps) for mbps in GRID],
    'shared': [(mbps, 198 + 420 / mbps) for mbps in GRID],
}


def pixels(path: Path, colour: str) -> np.ndarray:
    """Return rows and columns of the pixels of a colour, above the legend."""
    picture = cv2.imread(str(path)).astype(int)[:640]
    wanted = [int(colour[i:i + 2], 16) for i in (5, 3, 1)]
    return np.argwhere(np.abs(picture - wanted).max(2) < 4)


def test_curves_have_their_shapes(tmp_path: Path) -> None:
    path = tmp_path / 'book.png'
    draw_book(CURVES, path, 'HED')
    local, offload = (pixels(path, STRATEGIES[name]) for name in ('local', 'offload'))
    # Rows count from above: a constant stays in a band, and offloading falls from left to right.
    assert np.ptp(local[:, 0]) < 15 and np.ptp(local[:, 1]) > 800
    left, right = (offload[offload[:, 1] < 400, 0], offload[offload[:, 1] > 800, 0])
    assert left.mean() < local[:, 0].mean() < right.mean()


@pytest.mark.parametrize('mbps, edge, place', [(10.0, 'min', 0.38), (40.0, 'max', 0.62)])
def test_the_chosen_schedule_is_marked(tmp_path: Path, mbps: float, edge: str, place: float,
                                       ) -> None:
    """A line at its rate; the words stand on the side that has room."""
    plain, marked = tmp_path / 'plain.png', tmp_path / 'marked.png'
    draw_book(CURVES, plain, 'HED')
    draw_book(CURVES, marked, 'HED', chosen=(mbps, 219.0))
    columns = np.argwhere((cv2.imread(str(plain)) != cv2.imread(str(marked))).any(2))[:, 1]
    # From 1 to 400 Mbit/s on a logarithmic axis, between the columns 70 and 1190 or so.
    assert abs(getattr(columns, edge)() - (70 + 1120 * place)) < 50
    assert np.ptp(columns) > 250


@pytest.mark.parametrize('curves, message', [
    ({}, 'at least one point'),
    ({'local': []}, 'at least one point'),
    ({'local': [(0.0, 5.0)]}, 'above 0'),
    ({'local': [(1.0, -5.0)]}, 'above 0'),
])
def test_impossible_books_are_refused(tmp_path: Path, curves: dict[str, list[tuple[float, float]]],
                                      message: str) -> None:
    with pytest.raises(ValueError, match=message):
        draw_book(curves, tmp_path / 'book.png', 'HED')
