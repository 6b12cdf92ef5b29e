# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""
Draw what happened in one inference: who computed, what moved, and what was at once.

The spans may be measured (`intradp_ros.runtime.transport.timeline.Event`) or
simulated; anything with the attributes of `SpanLike` will do.
"""
from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.collections import PolyCollection
from matplotlib.figure import Figure
from matplotlib.patches import Patch
from matplotlib.text import Text

from intradp_ros.report.legend_place import add_legend, outside
from intradp_ros.report.operator_names import readable
from intradp_ros.report.palette import colours, GREY, GRID, INK, ink_on, LANES, OVERLAPS
from intradp_ros.report.saved_picture import save_picture
from intradp_ros.report.spans import both, Interval, length, SpanLike, tracks, union

MOVING = frozenset({'transfer', 'send', 'receive'})
_HEIGHT = 0.72  # of a row
_MARGIN = 14  # pixels left free in a bar with a name
_THIN = 0.005  # of the whole time: no room for a name or an edge
_SHORTEST = 4  # letters of a name that say something
_POINTS = 7  # size of a name's letters
_NARROWEST = 0.25  # of that size: a narrow letter's width
_ROUNDING = 1e-4  # seconds of overlap that do not count


def _intervals(spans: Sequence[SpanLike], lane: str, kinds: frozenset[str]) -> list[Interval]:
    """Return the times of some kinds on a lane, in order."""
    return union((s.start, s.stop) for s in spans if s.lane == lane and s.kind in kinds)


def _lanes(spans: Sequence[SpanLike]) -> list[str]:
    """Return the lanes from top to bottom: the usual ones, then others as they come."""
    there = list(dict.fromkeys(span.lane for span in spans))
    return [lane for lane in LANES if lane in there] + \
        [lane for lane in there if lane not in LANES]


def overlaps(spans: Sequence[SpanLike]) -> dict[str, list[Interval]]:
    """Return when two devices computed at once, and when data moved during computation."""
    lanes = _lanes(spans)
    computing = [_intervals(spans, lane, frozenset({'compute'})) for lane in lanes]
    shared = [time for index, one in enumerate(computing) for other in computing[:index]
              for time in both(one, other)]
    moving = [time for lane in lanes for time in _intervals(spans, lane, MOVING)]
    hidden = both((time for one in computing for time in one), moving)
    return {'both compute': union(shared), 'compute while data move': hidden}


def totals(spans: Sequence[SpanLike]) -> str:
    """Say how long the inference took and how busy each lane was."""
    first, last = min(s.start for s in spans), max(s.stop for s in spans)
    parts = [f'{1e3 * (last - first):.0f} ms in all']
    for lane in _lanes(spans):
        for kinds, word in ((frozenset({'compute'}), 'computes'), (MOVING, 'busy')):
            seconds = length(_intervals(spans, lane, kinds))
            if seconds:
                parts.append(f'{lane} {word} {1e3 * seconds:.0f} ms')
    return '  ·  '.join(parts)


class _Bars:
    """
    Bars in rows of an axes, and their names where there is room for them.

    There may be thousands: all bars are one artist, and a bar that has no room
    for a name on any layout gets none.
    """

    def __init__(self, figure: Figure, axes: Axes, zero: float, last: float) -> None:
        self.axes = axes
        self.zero = zero
        self.thin = 1e3 * (last - zero) * _THIN
        least = _MARGIN + _SHORTEST * _NARROWEST * _POINTS * figure.dpi / 72
        self.nameless = max(self.thin, 1e3 * (last - zero) * least / figure.bbox.width)
        self.texts: list[tuple[Text, float, float]] = []
        self._corners: list[list[tuple[float, float]]] = []
        self._colours: list[str] = []
        self._edges: list[float] = []

    def add(self, row: float, height: float, span: Interval, colour: str, name: str = '') -> None:
        """Add one bar; `row` is its middle."""
        start, stop = (1e3 * (time - self.zero) for time in span)
        top, bottom = row - height / 2, row + height / 2
        self._corners.append([(start, top), (start, bottom), (stop, bottom), (stop, top)])
        self._colours.append(colour)
        self._edges.append(0 if stop - start < self.thin else 0.6)
        if name and stop - start >= self.nameless:
            text = self.axes.text((start + stop) / 2, row, name, ha='center', va='center',
                                  fontsize=_POINTS, color=ink_on(colour), zorder=4,
                                  parse_math=False)
            text.set_in_layout(False)  # what is not in its bar is cut off
            self.texts.append((text, start, stop))

    def draw(self) -> None:
        """Put the bars into the axes."""
        self.axes.add_collection(PolyCollection(
            self._corners, facecolors=self._colours, edgecolors='white', linewidths=self._edges,
            zorder=3))

    def fit(self) -> None:
        """Shorten the names to the room in their bars; leave out what would be unreadable."""
        scale = self.axes.transData.transform
        for text, start, stop in self.texts:
            room = scale((stop, 0))[0] - scale((start, 0))[0] - _MARGIN
            name = text.get_text()
            cuts = [f'{name[:keep]}…' for keep in range(_SHORTEST, len(name) - 1)]
            if not _fits(text, name, room):
                fitting = bisect_left(cuts, True, key=lambda cut: not _fits(text, cut, room))
                text.set_text(cuts[fitting - 1] if fitting else '')


def _fits(text: Text, words: str, room: float) -> bool:
    text.set_text(words)
    return bool(text.get_window_extent().width <= room)


def _draw_lane(bars: _Bars, row: int, spans: Sequence[SpanLike], colour: str) -> None:
    """Draw the spans of one lane; those that overlap share the height of its row."""
    for span, (track, count) in zip(spans, tracks(spans, _ROUNDING)):
        height = _HEIGHT / count
        middle = row - _HEIGHT / 2 + height * (track + 0.5)
        waits = span.kind == 'wait'
        bars.add(middle, height * (0.35 if waits else 1), (span.start, span.stop),
                 GREY if waits else colour, '' if waits else readable(span.name))


def _decorate(axes: Axes, labels: Sequence[str], milliseconds: float, since: str) -> None:
    """Name rows and time axis."""
    axes.set_yticks(range(len(labels)), labels, fontsize=10, parse_math=False)
    axes.set_ylim(len(labels) - 0.5, -0.5)
    axes.set_xlim(0, milliseconds)
    axes.set_xlabel(f'time since {since} (ms)')
    axes.grid(axis='x', color=GRID, linewidth=0.8, zorder=0)
    axes.tick_params(axis='y', length=0)
    for side in ('top', 'right', 'left'):
        axes.spines[side].set_visible(False)


def _legend(spans: Sequence[SpanLike], lane_colours: dict[str, str],
            overlap: dict[str, tuple[str, list[Interval]]]) -> dict[str, Patch]:
    """Return the keys of the legend by what it calls them."""
    keys = {}
    for lane, colour in lane_colours.items():
        kinds = {span.kind for span in spans if span.lane == lane}
        if 'compute' in kinds:
            keys[f'{lane} computes'] = Patch(color=colour)
        if kinds & MOVING:
            keys[f'{lane}: data on the way'] = Patch(color=colour)
    if any(span.kind == 'wait' for span in spans):
        keys['waits'] = Patch(color=GREY)
    return keys | {f'{label} ({1e3 * length(times):.0f} ms)': Patch(color=colour)
                   for label, (colour, times) in overlap.items()}


def timeline_figure(spans: Sequence[SpanLike], title: str,
                    since: str = 'the inference began') -> Figure:
    """
    Return a figure of the timeline of one inference.

    :param spans: times in seconds, all on one clock; any of them may be the zero.
    :param title: model and mode, say; the totals are put under it.
    :param since: what the time axis begins with.
    :raises ValueError: when there is nothing to draw.
    """
    if not spans:
        raise ValueError('a timeline needs at least one event')
    zero, last = min(s.start for s in spans), max(s.stop for s in spans)
    lanes = colours(_lanes(spans), LANES)
    overlap = dict(zip(overlaps(spans), zip(OVERLAPS, overlaps(spans).values())))
    figure = Figure(figsize=(10, 1.6 + 0.62 * (len(lanes) + 1)), dpi=150, layout='constrained')
    axes = figure.add_subplot()
    bars = _Bars(figure, axes, zero, last)
    for row, (lane, colour) in enumerate(lanes.items()):
        _draw_lane(bars, row, [span for span in spans if span.lane == lane], colour)
    for number, (colour, times) in enumerate(overlap.values()):
        for time in times:
            bars.add(len(lanes) + 0.2 * (2 * number - 1), 0.3, time, colour)
    bars.draw()
    _decorate(axes, [*lanes, 'at once'], 1e3 * (last - zero), since)
    axes.set_title(title, pad=22, fontsize=12, fontweight='bold', color=INK,
                   parse_math=False)
    axes.annotate(totals(spans), (0.5, 1), xytext=(0, 6), xycoords='axes fraction',
                  textcoords='offset points', ha='center', fontsize=9, color=INK, parse_math=False)
    add_legend(figure, _legend(spans, lanes, overlap), loc=outside('lower center'), ncols=4,
               fontsize=8)
    engine = figure.get_layout_engine()
    assert engine is not None
    engine.execute(figure)  # decides how much room the names have
    bars.fit()
    return figure


def draw_timeline(spans: Sequence[SpanLike], path: Path, title: str) -> None:
    """Write `timeline_figure` as a PNG (or what the suffix of `path` says)."""
    save_picture(timeline_figure(spans, title), path)
