# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""Draw what the last inferences took, next to what the robot alone is expected to."""
from __future__ import annotations

from collections.abc import Sequence

from matplotlib.figure import Figure

from intradp_ros.report.legend_place import outside
from intradp_ros.report.palette import BLUE, GREEN, GRID, INK, ORANGE, RED
from intradp_ros.rqt.watched_robot import ALONE, BY_ROWS, RECOVERED, Sample, SHARED

COLOURS = {ALONE: BLUE, SHARED: ORANGE, BY_ROWS: GREEN, RECOVERED: RED}


def history_figure(samples: Sequence[Sample], now: float) -> Figure:
    """
    Return a figure of latencies by time, a point for each inference.

    :param now: seconds; the zero of the time axis.
    :raises ValueError: when there is nothing to draw.
    """
    if not samples:
        raise ValueError('a history needs at least one inference')
    figure = Figure(figsize=(10, 2.8), dpi=100, layout='constrained')
    axes = figure.add_subplot()
    for who, colour in COLOURS.items():
        mine = [sample for sample in samples if sample.who == who]
        if mine:
            axes.plot([s.when - now for s in mine], [s.latency for s in mine], 'o', color=colour,
                      markersize=4, label=f'{who} ({len(mine)})')
    known = [sample for sample in samples if sample.alone > 0]
    if known:
        axes.plot([s.when - now for s in known], [s.alone for s in known], '--', color=INK,
                  linewidth=1, label='robot alone, expected')
    axes.set_ylim(bottom=0)
    axes.set_xlabel('seconds ago')
    axes.set_ylabel('latency (ms)')
    axes.grid(color=GRID, linewidth=0.8, zorder=0)
    for side in ('top', 'right'):
        axes.spines[side].set_visible(False)
    figure.legend(loc=outside('upper center'), ncols=5, frameon=False, fontsize=8)
    return figure
