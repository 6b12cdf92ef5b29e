# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""Draw what a link did over time, and what each system made of it (as the paper's Figure 9)."""
from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from matplotlib.figure import Figure

from intradp_lab.report.statements import OURS
from intradp_ros.report.book_plot import Curve
from intradp_ros.report.legend_place import add_legend, outside
from intradp_ros.report.palette import colours, DARK_GREY, GRID, STRATEGIES
from intradp_ros.report.saved_picture import save_picture

#: Curves of more points have no markers: they would hide each other.
_MARKED = 60


def trace_figure(rate: Curve, latencies: Mapping[str, Curve], title: str) -> Figure:
    """
    Return a figure of two plots above each other: the link, and the systems on it.

    :param rate: points of (seconds, Mbit/s) that the link was set to.
    :param latencies: by system, points of (seconds, milliseconds), one for each inference.
    """
    figure = Figure(figsize=(9, 5.4), layout='constrained')
    above, below = figure.subplots(2, 1, sharex=True, height_ratios=(1, 2))
    above.step([t for t, _ in rate], [mbps for _, mbps in rate], where='post', color=DARK_GREY,
               linewidth=1.2)
    above.set_ylabel('link, Mbit/s')
    above.set_ylim(bottom=0)
    above.set_title(title, loc='left', fontsize=11, parse_math=False)
    drawn = {}
    for name, colour in colours(latencies, STRATEGIES).items():
        points, ours = latencies[name], name == OURS
        drawn[name], = below.plot(
            [t for t, _ in points], [ms for _, ms in points], color=colour,
            linewidth=2.0 if ours else 1.0, zorder=4 if ours else 3,
            marker='.' if len(points) <= _MARKED else '', markersize=3)
    below.set_ylabel('latency of an inference, ms')
    below.set_xlabel('seconds from the beginning of the trace')
    below.set_ylim(bottom=0)
    add_legend(figure, drawn, loc=outside('lower center'), ncols=len(latencies), fontsize=9)
    for axes in (above, below):
        axes.grid(color=GRID, linewidth=0.8)
        axes.set_axisbelow(True)
        for side in ('top', 'right'):
            axes.spines[side].set_visible(False)
    return figure


def draw_trace(rate: Curve, latencies: Mapping[str, Curve], path: Path, title: str) -> None:
    """Write `trace_figure` as a PNG (or what the suffix of `path` says)."""
    save_picture(trace_figure(rate, latencies, title), path, 130)
