# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""Draw a schedule book: predicted latency over bandwidth, one curve for each strategy."""
from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter, NullLocator

from intradp_ros.report.legend_place import add_legend, outside
from intradp_ros.report.palette import colours, GREY, GRID, INK, STRATEGIES
from intradp_ros.report.saved_picture import save_picture

Curve = Sequence[tuple[float, float]]

MARKERS = {'local': 's', 'offload': '^', 'cut': 'D', 'dsccs': 'P', 'spso-ga': 'X',
           'intra-dp': 'v', 'shared-de': 'd', 'shared': 'o', 'shared-energy': '*',
           'bound': ''}
#: What is not planned for latency says so: it may be slower than the robot alone.
AIMS = {'spso-ga': 'spso-ga (least energy)', 'shared-energy': 'shared-energy (least energy)'}
# The strategy that is to win lies under the others, wider, so that equal curves show both.
_UNDER = 'shared'


def _draw_curves(axes: Axes, curves: Mapping[str, Curve]) -> dict[str, Line2D]:
    """Draw the curves; return them by what the legend calls them."""
    drawn = {}
    for name, colour in colours(curves, STRATEGIES).items():
        points = sorted(curves[name])
        under = name == _UNDER
        drawn[AIMS.get(name, name)], = axes.plot(
            [mbps for mbps, _ in points], [ms for _, ms in points],
            color=colour, linestyle='--' if name == 'bound' else '-',
            linewidth=4.5 if under else 1.6, alpha=0.55 if under else 1,
            marker=MARKERS.get(name, '.'), markersize=7 if under else 4,
            zorder=2 if under else 3)
    return drawn


def _shade(axes: Axes, bound: Curve) -> None:
    """Shade where no schedule can be."""
    points = sorted(bound)
    least = axes.get_ylim()[0]
    axes.fill_between([mbps for mbps, _ in points], least, [ms for _, ms in points],
                      color=GREY, alpha=0.45, linewidth=0, zorder=0)
    axes.set_ylim(bottom=least)


def _mark(axes: Axes, chosen: tuple[float, float], label: str) -> None:
    """Mark the schedule that was chosen; the words stand on the side that has room."""
    mbps, milliseconds = chosen
    left, right = axes.get_xlim()
    to_the_right = mbps * mbps < left * right  # the middle of a logarithmic axis
    axes.axvline(mbps, color=INK, linewidth=0.8, linestyle=':', zorder=1)
    axes.plot([mbps], [milliseconds], marker='*', markersize=15, color=INK, zorder=5,
              linestyle='none')
    axes.annotate(label, (mbps, axes.get_ylim()[1]), xytext=(6 if to_the_right else -6, -6),
                  textcoords='offset points', ha='left' if to_the_right else 'right', va='top',
                  fontsize=9, color=INK, bbox={'color': 'white', 'alpha': 0.85, 'pad': 2},
                  zorder=4)


def logarithmic(axes: Axes) -> None:
    """Make both axes logarithmic, with plain numbers on them."""
    plain = FuncFormatter(lambda value, _: f'{value:g}')
    for axis, set_scale, steps in ((axes.xaxis, axes.set_xscale, (1, 2, 5)),
                                   (axes.yaxis, axes.set_yscale, (1, 2, 3, 5, 7))):
        set_scale('log')
        axis.set_major_locator(LogLocator(subs=steps))
        axis.set_major_formatter(plain)
        axis.set_minor_locator(NullLocator())
        axis.set_minor_formatter(NullFormatter())
    axes.grid(color=GRID, linewidth=0.8)
    for side in ('top', 'right'):
        axes.spines[side].set_visible(False)


def book_figure(curves: Mapping[str, Curve], title: str,
                chosen: tuple[float, float] | None = None) -> Figure:
    """
    Return a figure of latency over bandwidth.

    :param curves: by strategy, points of (Mbit/s, milliseconds), all above 0; a lower bound
        goes by the name of ``bound``.
    :param chosen: the point of the schedule in use; None marks nothing.
    :raises ValueError: when there is no point to draw, or one is not above 0.
    """
    points = [point for curve in curves.values() for point in curve]
    if not points:
        raise ValueError('a book needs at least one point to be drawn')
    if not all(value > 0 for point in points for value in point):
        raise ValueError('bandwidth and latency of a book must be above 0')
    figure = Figure(figsize=(8, 4.8), dpi=150, layout='constrained')
    axes = figure.add_subplot()
    logarithmic(axes)
    drawn = _draw_curves(axes, curves)
    if curves.get('bound'):
        _shade(axes, curves['bound'])
    if chosen:
        _mark(axes, chosen, f'in use: {chosen[1]:.0f} ms at {chosen[0]:g} Mbit/s')
    axes.set_title(title, fontsize=12, fontweight='bold', color=INK, parse_math=False)
    axes.set_xlabel('bandwidth (Mbit/s)')
    axes.set_ylabel('predicted latency (ms)')
    add_legend(figure, drawn, loc=outside('lower center'), ncols=min(len(curves), 5))
    return figure


def draw_book(curves: Mapping[str, Curve], path: Path, title: str,
              chosen: tuple[float, float] | None = None) -> None:
    """Write `book_figure` as a PNG (or what the suffix of `path` says)."""
    save_picture(book_figure(curves, title, chosen), path)
