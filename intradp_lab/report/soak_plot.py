# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""Draw a soak: answers and memory over time, and what went wrong when."""
from __future__ import annotations

from collections.abc import Mapping, Sequence
import math
from pathlib import Path
from typing import Protocol

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from intradp_ros.report.legend_place import add_legend
from intradp_ros.report.saved_picture import save_picture

_COLOURS = ('#4c72b0', '#dd8452', '#55a868', '#8172b3')


class _Row(Protocol):
    @property
    def at(self) -> float:
        """When a frame was published, in seconds."""

    @property
    def answer_s(self) -> float:
        """Seconds to its answer; NaN if there was none."""


class _Fault(Protocol):
    @property
    def name(self) -> str:
        """What went wrong."""

    @property
    def start(self) -> float:
        """When it began, in seconds."""

    @property
    def stop(self) -> float:
        """When it ended, in seconds."""


class _Held(Protocol):
    @property
    def at(self) -> float:
        """When, in seconds."""

    @property
    def resident_bytes(self) -> int:
        """Memory in bytes."""


class SoakLike(Protocol):
    """What is drawn: frames, faults, and what each node held."""

    @property
    def rows(self) -> Sequence[_Row]:
        """The frames."""

    @property
    def happened(self) -> Sequence[_Fault]:
        """The faults."""

    @property
    def samples(self) -> Mapping[str, Sequence[_Held]]:
        """What each node held."""


def draw_soak(soak: SoakLike, path: Path) -> None:
    """Write the picture; its format is that of the file's name."""
    figure = Figure(figsize=(11, 7.5), layout='constrained')
    answers, faults, memory = figure.subplots(3, 1, sharex=True, height_ratios=[3, 3, 2])
    zero = soak.rows[0].at if soak.rows else 0.0
    _draw_answers(answers, soak.rows, zero)
    _draw_faults(faults, soak.happened, zero)
    drawn = {}
    for (name, samples), colour in zip(soak.samples.items(), _COLOURS):
        drawn[name], = memory.plot(
            [s.at - zero for s in samples], [s.resident_bytes / 1e6 for s in samples], '.',
            markersize=2, color=colour)
    memory.set(ylabel='memory, MB', xlabel='seconds', ylim=(0, None))
    add_legend(memory, drawn, loc='lower left', bbox_to_anchor=(0.0, 0.98), ncols=4,
               markerscale=4)
    save_picture(figure, path, 110)


def _draw_answers(axes: Axes, rows: Sequence[_Row], zero: float) -> None:
    answered = [row for row in rows if not math.isnan(row.answer_s)]
    axes.plot([row.at - zero for row in answered], [1e3 * row.answer_s for row in answered], '.',
              markersize=2, color=_COLOURS[0], label='answered')
    for row in rows:
        if math.isnan(row.answer_s):
            axes.axvline(row.at - zero, color='red')
    axes.set(yscale='log', ylabel='answer, ms', title='Frames, faults and memory of a soak')


def _draw_faults(axes: Axes, happened: Sequence[_Fault], zero: float) -> None:
    names = sorted({each.name for each in happened}, reverse=True)
    for each in happened:
        axes.barh(names.index(each.name), each.stop - each.start, left=each.start - zero,
                  height=0.6, color=_COLOURS[1])
    axes.set_yticks(range(len(names)), [name.replace('_', ' ') for name in names],
                    fontsize='small', parse_math=False)
