# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""Answers in time by second, of several systems, and while a site is killed."""
from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure
import numpy as np

from intradp_ros.report.palette import BLUE, GREEN, GREY, INK, ORANGE, PURPLE, RED
from intradp_ros.report.saved_picture import save_picture

_COLOURS = (BLUE, ORANGE, GREEN, PURPLE)


@dataclass(frozen=True)
class Played:
    """By request of one run: seconds at which it was sent, and whether it was answered in time."""

    name: str
    sent: Any
    in_time: Any


def by_second(sent: Any, chosen: Any) -> Any:
    """Return how many of the chosen requests were sent in each second."""
    last = int(np.ceil(max(1.0, float(np.max(sent, initial=0.0)))))
    return np.histogram(np.asarray(sent)[np.asarray(chosen, bool)], last, (0, last))[0]


def draw_serving(runs: Sequence[Played], killed: Played, killed_at: float, who: str, bound: float,
                 path: Path) -> None:
    """Write a picture; `bound` are answers in time per second that none can exceed."""
    figure = Figure(figsize=(9, 6), layout='constrained')
    above, below = figure.subplots(2, 1)
    _offered(above, runs[0])
    above.axhline(bound, color=INK, linewidth=0.8, linestyle=':', label='bound')
    for colour, run in zip(_COLOURS, runs):
        _steps(above, run, colour)
    _offered(below, killed)
    _steps(below, killed, BLUE)
    below.axvline(killed_at, color=RED, linewidth=0.9, linestyle='--')
    below.annotate(f'{who} is killed', (killed_at, 0.06), color=INK, fontsize=9,
                   xycoords=('data', 'axes fraction'), xytext=(5, 0),
                   textcoords='offset points', parse_math=False)
    for axes in (above, below):
        axes.set_ylim(bottom=0)
        axes.set_ylabel('answers in time per s')
        axes.legend(frameon=False, ncols=5, loc='lower right', fontsize=8)
    below.set_xlabel('seconds')
    save_picture(figure, path, 150)


def _offered(axes: Any, run: Played) -> None:
    axes.stairs(by_second(run.sent, np.ones(len(run.sent), bool)), color=GREY, fill=True,
                label='asked')


def _steps(axes: Any, run: Played, colour: str) -> None:
    axes.stairs(by_second(run.sent, run.in_time), color=colour, linewidth=1.4, label=run.name)
