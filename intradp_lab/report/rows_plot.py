# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""Which rows of every value the robot computes, and which the server."""
from __future__ import annotations

from collections.abc import Sequence

from matplotlib.figure import Figure
from matplotlib.patches import Patch

from intradp_ros.report.palette import GRID, INK, ink_on, LANES
from intradp_ros.schedule.schedule import ROBOT, SERVER

#: The narrowest part that has its share written in it.
_NARROWEST, _LOWEST = 0.09, 0.1


def rows_figure(stages: Sequence[tuple[int, float]], title: str) -> Figure:
    """
    Return a figure: operators in order from left to right, rows from top to bottom.

    :param stages: the operator that each stage ends before, and the share of the rows, from the
        first on, that are the robot's; as `RowStage` has them.
    """
    figure = Figure(figsize=(9, 3.2), dpi=150, layout='constrained')
    axes, begin, whole = figure.subplots(), 0, stages[-1][0]
    for stop, share in stages:
        for side, top, height in ((ROBOT, 0.0, share), (SERVER, share, 1 - share)):
            if not height:
                continue
            axes.broken_barh([(begin, stop - begin)], (100 * top, 100 * height),
                             facecolors=LANES[side], edgecolor='white', linewidth=0.8)
            if (stop - begin) / whole >= _NARROWEST and height >= _LOWEST:
                axes.text((begin + stop) / 2, 100 * (top + height / 2), f'{height:.0%}',
                          ha='center', va='center', fontsize=9, color=ink_on(LANES[side]))
        begin = stop
    axes.set_xlim(0, whole)
    axes.set_ylim(100, 0)
    axes.set_xlabel('operators, in order')
    axes.set_ylabel('rows, from the top (%)')
    axes.set_title(title, color=INK, parse_math=False)
    axes.grid(axis='y', color=GRID)
    axes.set_axisbelow(True)
    figure.legend(handles=[Patch(color=LANES[side], label=f'computed by the {side}')
                           for side in (ROBOT, SERVER)],
                  loc='outside lower center', ncols=2, frameon=False)
    return figure
