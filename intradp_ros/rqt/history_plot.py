# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""Draw what the last frames took with its parts, next to what the robot alone is expected to."""
from __future__ import annotations

from matplotlib.figure import Figure
import numpy as np

from intradp_ros.report.legend_place import outside
from intradp_ros.report.palette import GRID, INK
from intradp_ros.report.view.blocks import Block


def history_figure(block: Block) -> Figure:
    """Return the figure of a block that `frames` made."""
    figure = Figure(figsize=(10, 2.8), dpi=100, layout='constrained')
    axes, rows = figure.add_subplot(), block['rows']
    places, floor = np.arange(len(rows)), np.zeros(len(rows))
    for k, (part, colour) in enumerate(block['parts']):
        values = np.array([row['values'][k] for row in rows])
        axes.bar(places, values, 0.9, floor, color=colour, label=part)
        floor += values
    for key, style, label in (('predicted', '-', 'predicted'),
                              ('limit', '--', 'robot alone, expected')):
        values = np.array([row.get(key) or np.nan for row in rows])
        if not np.isnan(values).all():
            axes.plot(places, values, style, color=INK, linewidth=1, label=label)
    axes.set_xlabel('frames')
    axes.set_ylabel('latency (ms)')
    axes.grid(color=GRID, linewidth=0.8, axis='y')
    axes.set_axisbelow(True)
    for side in ('top', 'right'):
        axes.spines[side].set_visible(False)
    figure.legend(loc=outside('upper center'), ncols=6, frameon=False, fontsize=8)
    return figure
