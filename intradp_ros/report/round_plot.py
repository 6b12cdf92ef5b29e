# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""One round of training: who computes forward and backward, and who sends, when."""
from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from matplotlib.figure import Figure
from matplotlib.patches import Patch

from intradp_ros.report.palette import BLUE, GREEN, GREY, ink_on, ORANGE, PURPLE
from intradp_ros.report.saved_picture import save_picture

FORWARD, BACKWARD, UPDATE = 'forward', 'backward', 'update of weights'
VALUES, SUMS = 'values and gradients', 'sum of gradients'
_COLOURS = {FORWARD: BLUE, BACKWARD: ORANGE, UPDATE: PURPLE, VALUES: GREY, SUMS: GREEN}
_OF_LETTER = {'F': FORWARD, 'B': BACKWARD, 'U': UPDATE}


@dataclass(frozen=True, slots=True)
class RoundSpan:
    """Something of one of the five kinds that keeps a device or a medium busy, in seconds."""

    row: str
    kind: str
    text: str
    start: float
    stop: float


def kind_of(action: str) -> str:
    """Return the kind of a device's action, such as F0, B0 or U."""
    return _OF_LETTER.get(action[:1], BACKWARD)


def draw_round(spans: Sequence[RoundSpan], devices: Sequence[str], media: Sequence[str],
               path: Path, title: str) -> None:
    """Write a picture with a row for each device, and below a lower one for each medium."""
    heights = [0.8] * len(devices) + [0.35] * len(media)
    figure = Figure(figsize=(9, 1.6 + 0.7 * sum(heights)), layout='constrained')
    axes = figure.subplots()
    end, top, middles = 1e3 * max(span.stop for span in spans), 0.0, []
    for name, height in zip((*devices, *media), heights):
        for span in (one for one in spans if one.row == name):
            start, width = 1e3 * span.start, 1e3 * (span.stop - span.start)
            axes.broken_barh([(start, width)], (top, height), facecolors=_COLOURS[span.kind],
                             edgecolor='white', linewidth=0.5)
            if span.text and width > 0.02 * end:
                axes.text(start + width / 2, top + height / 2, span.text, ha='center',
                          va='center', fontsize=7, color=ink_on(_COLOURS[span.kind]),
                          parse_math=False)
        middles.append(top + height / 2)
        top += height + 0.15
    axes.set_yticks(middles, [*devices, *media], parse_math=False)
    axes.set_ylim(top, -0.15)
    axes.set_xlim(0, end)
    axes.set_xlabel('time (ms)')
    axes.set_title(title, parse_math=False)
    axes.grid(axis='x', alpha=0.3)
    axes.set_axisbelow(True)
    kinds = [kind for kind in _COLOURS if any(span.kind == kind for span in spans)]
    figure.legend(handles=[Patch(color=_COLOURS[kind], label=kind) for kind in kinds],
                  loc='outside lower center', ncols=5, frameon=False)
    save_picture(figure, path, dpi=130)
