# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""Draw a figure of many cases: a line for each case, a mark for each system."""
from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

from intradp_lab.report.statements import OURS
from intradp_ros.report.book_plot import MARKERS
from intradp_ros.report.legend_place import add_legend, outside
from intradp_ros.report.palette import colours, GRID, INK, STRATEGIES

#: By case, the value of each system; all above 0.
Rows = Mapping[str, Mapping[str, float]]


def overview_figure(panels: Mapping[str, Rows], quantity: str) -> Figure:
    """
    Return a figure of a logarithmic quantity, with a panel for each link.

    :param panels: by the panel's title, rows that all panels share; a lower bound goes by the
        name of ``bound``.
    :param quantity: with its unit; stands below the axes.
    :raises ValueError: when there is nothing to draw, or a value is not above 0.
    """
    names = list(dict.fromkeys(case for rows in panels.values() for case in rows))
    values = [v for rows in panels.values() for row in rows.values() for v in row.values()]
    if not values or not all(value > 0 for value in values):
        raise ValueError('an overview needs values, all above 0')
    figure = Figure(figsize=(9.5, 1.5 + 0.36 * len(names)), layout='constrained')
    grid = figure.subplots(1, len(panels), sharex=True, sharey=True, squeeze=False)
    systems = list(dict.fromkeys(
        s for rows in panels.values() for row in rows.values() for s in row))
    handles: dict[str, Line2D] = {}
    for axes, (title, rows) in zip(grid[0], panels.items()):
        handles |= _draw(axes, names, rows, colours(systems, STRATEGIES))
        axes.set_title(title, fontsize=11, loc='left', color=INK, parse_math=False)
        axes.set_xlabel(quantity)
    _decorate(grid[0][0], names)
    add_legend(figure, handles, loc=outside('lower center'), ncols=min(len(handles), 5),
               fontsize=9)
    return figure


def _draw(axes: Axes, names: list[str], rows: Rows, palette: Mapping[str, str],
          ) -> dict[str, Line2D]:
    drawn = {}
    for system, colour in palette.items():
        known = [(names.index(case), row[system]) for case, row in rows.items() if system in row]
        drawn[system], = axes.plot(
            [value for _, value in known], [place for place, _ in known], linestyle='none',
            label=system, color=colour, **_mark(system, colour))
    for place, name in enumerate(names):
        inside = rows.get(name, {}).values()
        if inside:
            axes.plot([min(inside), max(inside)], [place, place], color=GRID, linewidth=2.5,
                      zorder=2)
    for side in ('top', 'right', 'left'):
        axes.spines[side].set_visible(False)
    axes.grid(axis='x', color=GRID, linewidth=0.8)
    axes.tick_params(axis='y', length=0)
    return drawn


def _mark(system: str, colour: str) -> dict[str, Any]:
    """Return how a system is marked: ours by a ring, so that equal values show both."""
    mark = {'marker': MARKERS.get(system) or '|', 'markeredgecolor': colour, 'zorder': 4}
    if system in (OURS, 'bound'):
        return {**mark, 'markerfacecolor': 'none', 'markersize': 11.0, 'markeredgewidth': 2.2,
                'zorder': 5}
    return {**mark, 'markersize': 6.5, 'markeredgewidth': 0.0}


def _decorate(axes: Axes, names: list[str]) -> None:
    """Scale and name both axes, which the panels share."""
    axes.set_xscale('log')
    axes.xaxis.set_major_locator(LogLocator(subs=(1, 3)))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f'{value:g}'))
    axes.xaxis.set_minor_formatter(NullFormatter())
    axes.set_yticks(range(len(names)), names, fontsize=9, parse_math=False)
    axes.set_ylim(len(names) - 0.5, -0.5)
