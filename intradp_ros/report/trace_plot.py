# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""Draw what a link did over time, and what each system made of it (as the paper's Figure 9)."""
from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from matplotlib.figure import Figure

from intradp_ros.report.palette import colours, DARK_GREY, STRATEGIES

Curve = Sequence[tuple[float, float]]


def draw_trace(rate: Curve, latencies: Mapping[str, Curve], path: Path, title: str) -> None:
    """
    Write two plots above each other as a PNG (or what the suffix of `path` says).

    :param rate: points of (seconds, Mbit/s) that the link was set to.
    :param latencies: by system, points of (seconds, milliseconds), one for each inference.
    """
    figure = Figure(figsize=(9, 5.4), layout='constrained')
    above, below = figure.subplots(2, 1, sharex=True, height_ratios=(1, 2))
    above.step([t for t, _ in rate], [mbps for _, mbps in rate], where='post', color=DARK_GREY,
               linewidth=1.2)
    above.set_ylabel('link, Mbit/s')
    above.set_ylim(bottom=0)
    above.set_title(title, loc='left', fontsize=11)
    for name, colour in colours(latencies, STRATEGIES).items():
        points = latencies[name]
        below.plot([t for t, _ in points], [ms for _, ms in points], label=name, color=colour,
                   linewidth=1.2, marker='.', markersize=3)
    below.set_ylabel('latency of an inference, ms')
    below.set_xlabel('seconds from the beginning of the trace')
    below.set_ylim(bottom=0)
    below.legend(frameon=False, ncols=len(latencies), loc='upper left', fontsize=9)
    for axes in (above, below):
        axes.grid(color='#E5E7EA', linewidth=0.8)
        axes.set_axisbelow(True)
        for side in ('top', 'right'):
            axes.spines[side].set_visible(False)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=130)
