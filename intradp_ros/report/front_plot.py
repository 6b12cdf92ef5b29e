# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""Draw what schedules take in time and energy: the front that nothing beats, and the systems."""
from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from intradp_ros.report.book_plot import MARKERS
from intradp_ros.report.legend_place import add_legend, outside
from intradp_ros.report.palette import colours, GRID, INK, STRATEGIES
from intradp_ros.report.saved_picture import save_picture

Point = tuple[float, float]


def _draw_front(axes: Axes, front: Sequence[Point]) -> Line2D:
    """Draw the front as steps: between two schedules only the slower one is in time."""
    milliseconds, joules = zip(*front)
    right, top = axes.get_xlim()[1], axes.get_ylim()[1]
    x, y = [milliseconds[0], *milliseconds, right], [top, *joules, joules[-1]]
    axes.step(x, y, where='post', color=INK, linewidth=1.4, zorder=2)
    drawn, = axes.plot(milliseconds, joules, linestyle='none', marker='o', markersize=4, color=INK,
                       zorder=3)
    return drawn


def _draw_systems(axes: Axes, systems: Mapping[str, Point]) -> dict[str, Line2D]:
    """Mark what each system takes; the first ones larger, so that equal points show all."""
    size, drawn = 15.0, {}
    for name, colour in colours(systems, STRATEGIES).items():
        drawn[name], = axes.plot(
            *systems[name], linestyle='none', marker=MARKERS.get(name, 'o'), markersize=size,
            color=colour, markeredgecolor='white', markeredgewidth=0.8, zorder=4)
        size = max(8.0, size - 1.5)
    return drawn


def draw_front(front: Sequence[Point], systems: Mapping[str, Point], path: Path, title: str,
               ) -> None:
    """
    Write latency against energy as a PNG (or what the suffix of `path` says).

    :param front: points of (milliseconds, joules) that none beats in both, by latency.
    :param systems: by name, what each system takes.
    :raises ValueError: when there is no point on the front, or one is below 0.
    """
    points = [*front, *systems.values()]
    if not front:
        raise ValueError('a front needs at least one point to be drawn')
    if not all(value >= 0 for point in points for value in point):
        raise ValueError('latency and energy must not be below 0')
    figure = Figure(figsize=(8, 4.8), dpi=150, layout='constrained')
    axes = figure.add_subplot()
    axes.set_xlim(0, 1.08 * max(milliseconds for milliseconds, _ in points))
    axes.set_ylim(0, 1.12 * max(joules for _, joules in points))
    drawn = {'front': _draw_front(axes, front), **_draw_systems(axes, systems)}
    axes.grid(color=GRID, linewidth=0.8)
    axes.set_axisbelow(True)
    for side in ('top', 'right'):
        axes.spines[side].set_visible(False)
    axes.set_title(title, fontsize=12, fontweight='bold', color=INK, parse_math=False)
    axes.set_xlabel('predicted latency (ms)')
    axes.set_ylabel("robot's energy (J, modelled)")
    add_legend(figure, drawn, loc=outside('lower center'), ncols=min(len(drawn), 5))
    save_picture(figure, path)
