# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""What a timeline says, and that the picture shows it."""
from __future__ import annotations

from pathlib import Path

import cv2
import numpy as np
import pytest

from intradp_ros.report.palette import GREY, LANES, OVERLAPS
from intradp_ros.report.timeline_plot import draw_timeline, overlaps, timeline_figure, totals
from intradp_ros.runtime.transport.timeline import Event

EVENTS = [
    Event('robot', 'compute', 'conv2d .. relu_3', 5.000, 5.080),
    Event('robot', 'wait', 'transfer 2', 5.080, 5.100),
    Event('robot', 'compute', 'sigmoid', 5.100, 5.120),
    Event('uplink', 'transfer', '0', 5.000, 5.030),
    Event('server', 'compute', 'conv2d', 5.030, 5.070),
    Event('downlink', 'transfer', '2', 5.070, 5.100),
]


def colour_share(path: Path, colour: str) -> float:
    """Return which part of a picture has (almost) a colour."""
    picture = cv2.imread(str(path)).astype(int)
    wanted = [int(colour[i:i + 2], 16) for i in (5, 3, 1)]
    return float((np.abs(picture - wanted).max(2) < 4).mean())


def test_totals_count_each_lane() -> None:
    assert totals(EVENTS).split('  ·  ') == [
        '120 ms in all', 'robot computes 100 ms', 'uplink busy 30 ms', 'server computes 40 ms',
        'downlink busy 30 ms']


def test_overlaps_are_found() -> None:
    shared, hidden = overlaps(EVENTS).values()
    assert shared == [(5.030, 5.070)]
    assert hidden == [(5.000, 5.030), (5.070, 5.080)]


def test_bars_have_the_areas_of_their_times(tmp_path: Path) -> None:
    path = tmp_path / 'timeline.png'
    draw_timeline(EVENTS, path, 'HED, shared')
    robot, server, uplink, downlink = (
        colour_share(path, LANES[lane]) for lane in ('robot', 'server', 'uplink', 'downlink'))
    assert robot / server == pytest.approx(100 / 40, rel=0.2)
    assert uplink / downlink == pytest.approx(1, rel=0.2)
    assert colour_share(path, GREY) > 0
    assert colour_share(path, OVERLAPS[0]) > 0


def test_times_may_begin_anywhere(tmp_path: Path) -> None:
    pictures = []
    for number, seconds in enumerate((0, 4096)):  # exact in floating point
        path = tmp_path / f'{number}.png'
        draw_timeline([event.shift(seconds) for event in EVENTS], path, 'HED, shared')
        pictures.append(cv2.imread(str(path)).astype(int))
    assert np.abs(pictures[0] - pictures[1]).mean() < 0.5


def test_a_lane_of_another_name_is_drawn(tmp_path: Path) -> None:
    path = tmp_path / 'timeline.png'
    draw_timeline([*EVENTS, Event('second server', 'compute', 'conv2d', 5.0, 5.06)], path, 'Three')
    plain = tmp_path / 'plain.png'
    draw_timeline(EVENTS, plain, 'Two')
    assert cv2.imread(str(path)).shape[0] > cv2.imread(str(plain)).shape[0]


def test_nothing_to_draw_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match='at least one event'):
        draw_timeline([], tmp_path / 'timeline.png', 'Empty')


def test_names_stay_in_their_bars(tmp_path: Path) -> None:
    """Of a name as much is shown as there is room for; where there is none, nothing."""
    figure = timeline_figure([
        Event('robot', 'compute', 'a_name_that_has_room', 0.0, 1.0),
        Event('robot', 'compute', 'a_name_that_is_much_too_long_for_it', 1.0, 1.1),
        Event('robot', 'compute', 'nameless', 1.1, 1.11)], 'Names')
    shown = [text.get_text() for text in figure.axes[0].texts if text.get_fontsize() == 7]
    assert shown[0] == 'a_name_that_has_room'
    assert shown[1][-1] == '…' and 'a_name_that_is_much_too_long_for_it'.startswith(shown[1][:-1])
    assert 'nameless' not in shown
    figure.canvas.draw()
    scale = figure.axes[0].transData.transform
    long = next(t for t in figure.axes[0].texts if t.get_text() == shown[1])
    extent = long.get_window_extent()
    assert scale((1000, 0))[0] < extent.x0 < extent.x1 < scale((1100, 0))[0]


def test_a_thousand_spans_are_few_artists() -> None:
    """An artist for each would take seconds to draw, again and again in a window that watches."""
    spans = [Event(lane, 'compute', f'conv2d_{i}', 0.002 * i, 0.002 * i + 0.0019)
             for lane in ('robot', 'server') for i in range(500)]
    assert len(timeline_figure(spans, 'Many').findobj()) < 300
