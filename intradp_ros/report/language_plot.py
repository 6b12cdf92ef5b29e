# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""Who computes and reads when: a language model over several devices."""
from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from matplotlib.figure import Figure

from intradp_ros.report.palette import BLUE, ORANGE
from intradp_ros.report.saved_picture import save_picture


@dataclass(frozen=True, slots=True)
class BlockSpan:
    """A device computed or read (`reads`) something from `start` to `stop` (s)."""

    device: str
    reads: bool
    start: float
    stop: float


def draw_blocks(spans: Sequence[BlockSpan], devices: Sequence[str], path: Path, title: str,
                ) -> None:
    """Write a picture with two rows for each device: computing, and reading from the disk."""
    zero = min(span.start for span in spans)
    figure = Figure(figsize=(9, 1.2 + 0.8 * len(devices)), layout='constrained')
    axes = figure.subplots()
    for row, name in enumerate(devices):
        for reads, colour in ((False, BLUE), (True, ORANGE)):
            bars = [(1e3 * (s.start - zero), 1e3 * (s.stop - s.start)) for s in spans
                    if s.device == name and s.reads == reads]
            axes.broken_barh(bars, (row + (0.02 if reads else -0.38), 0.36), facecolors=colour,
                             label=None if row else ('reads from its disk' if reads else
                                                     'computes'))
    axes.set_yticks(range(len(devices)), devices, parse_math=False)
    axes.invert_yaxis()
    axes.set_xlabel('time (ms)')
    axes.set_title(title, parse_math=False)
    axes.grid(axis='x', alpha=0.3)
    figure.legend(loc='outside lower center', ncols=2, frameon=False)
    save_picture(figure, path, dpi=150)
