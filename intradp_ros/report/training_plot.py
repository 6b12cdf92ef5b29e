# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""Loss by round next to that of one process, and which device trained which layers when."""
from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from matplotlib.figure import Figure
from matplotlib.ticker import LogFormatter

from intradp_ros.report.palette import BLUE, GREEN, GREY, INK, ink_on, ORANGE, PURPLE, RED
from intradp_ros.report.saved_picture import save_picture

_STAGES = (BLUE, ORANGE, GREEN, PURPLE)


class _Plain(LogFormatter):
    """Numbers of a logarithmic axis without powers of ten."""

    def __call__(self, x: float, pos: int | None = None) -> str:
        return f'{x:g}' if super().__call__(x, pos) else ''


@dataclass(frozen=True, slots=True)
class Part:
    """A device's part from a round to another: its stage's number and what it does there."""

    device: str
    stage: int
    first: int
    last: int
    text: str


def draw_training(loss: Sequence[float], alone: Sequence[float], parts: Sequence[Part],
                  devices: Sequence[str], lost: Sequence[tuple[str, int]], path: Path,
                  first: int = 0, how: str = 'is lost') -> None:
    """
    Write a picture; `lost` are devices with the rounds in which they were, as `how` says.

    Losses begin with round `first`; those of one process may be empty.
    """
    figure = Figure(figsize=(9, 3.4 + 0.6 * len(devices)), layout='constrained')
    above, below = figure.subplots(2, 1, sharex=True,
                                   height_ratios=[3, 0.4 + 0.6 * len(devices)])
    if alone:
        above.plot(alone, color=GREY, linewidth=5, label='one process')
    above.plot(range(first, first + len(loss)), loss, color=BLUE, linewidth=1.3,
               label='over the devices')
    above.set_yscale('log')
    above.yaxis.set_major_formatter(_Plain())
    above.yaxis.set_minor_formatter(_Plain(minor_thresholds=(2, 0.5)))
    above.set_ylabel('loss (mean of a round)')
    for part in parts:
        row, colour = list(devices).index(part.device), _STAGES[part.stage % len(_STAGES)]
        below.broken_barh([(part.first, part.last - part.first)], (row - 0.38, 0.76),
                          facecolors=colour, edgecolor='white')
        below.text((part.first + part.last) / 2, row, part.text, ha='center', va='center',
                   fontsize=8, color=ink_on(colour), parse_math=False)
    for k, (name, number) in enumerate(lost):
        below.plot([number], [list(devices).index(name)], 'X', color=RED, markersize=11)
        for axes in (above, below):
            axes.axvline(number, color=RED, linewidth=0.8, linestyle='--')
        above.annotate(f'{name} {how}', (number, 0.92 - 0.08 * (k % 8)), color=INK, fontsize=9,
                       xycoords=('data', 'axes fraction'), xytext=(5, 0),
                       textcoords='offset points', parse_math=False)
    if alone:
        above.legend(frameon=False)
    below.set_yticks(range(len(devices)), devices, parse_math=False)
    below.set_ylim(len(devices) - 0.5, -0.5)
    below.set_xlabel('round (step of the optimiser)')
    save_picture(figure, path, dpi=120)
