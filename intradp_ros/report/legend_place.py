# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""Where a figure's legend goes, by the release of matplotlib, and what it says."""
from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import matplotlib
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure


def outside(place: str) -> Any:
    """
    Return the location next to the axes that is called `place`, as ``lower center``.

    Before matplotlib 3.7 (Ubuntu 24.04 has 3.6) no room is kept for a legend
    there: it lies on what is at that edge of the figure.
    """
    version = tuple(int(part) for part in matplotlib.__version__.split('.')[:2])
    return f'outside {place}' if version >= (3, 7) else place


def add_legend(where: Figure | Axes, handles: Mapping[str, Artist], ncols: int, **looks: Any,
               ) -> None:
    """
    Add a legend whose names are shown as they are, in as many columns as the figure has room for.

    To matplotlib ``$`` begins mathematics, which a name need not be, and a
    name that begins with ``_`` is hidden.
    """
    figure = where.figure if isinstance(where, Axes) else where
    for columns in range(ncols, 0, -1):
        legend = where.legend(list(handles.values()), ['?'] * len(handles), ncols=columns,
                              frameon=False, **looks)
        for words, name in zip(legend.get_texts(), handles):
            words.set_text(name)
            words.set_parse_math(False)
        if columns == 1 or legend.get_window_extent().width <= figure.bbox.width:
            return
        legend.remove()
