# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""
The pieces of a view, as plain data that the page draws; a view is JSON and holds no markup.

A view is a title, notes, and sections of blocks.  What is not a number is left out, texts are
cut: they come from strangers.
"""
from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
import math
from typing import Any

from intradp_ros.report.palette import BLUE, colours, GREEN, LANES, ORANGE, PURPLE, RED
from intradp_ros.report.spans import length

Block = dict[str, Any]
Point = Sequence[Any]
Column = str | Callable[[Mapping[str, Any]], str]
MAX_TEXT, MOST_SPANS = 300, 4000
#: How well something is.
WELL, WARNS, OUT = 'well', 'warns', 'out'


def cut(value: Any, most: int = MAX_TEXT) -> str:
    """Return a value as text, cut."""
    text = str(value)
    return text if len(text) <= most else text[:most - 1] + '…'


def number(value: Any) -> float | None:
    """Return a finite number, None for anything else; of a text the number that it is."""
    try:
        found = math.nan if isinstance(value, bool) else float(value)
    except (TypeError, ValueError, OverflowError):
        return None
    return found if math.isfinite(found) else None


def shown(value: Any, unit: str = '', places: int | None = None) -> str:
    """Return a number for people, with three digits or so many places; '–' for none."""
    found = number(value)
    if found is None:
        return '–'
    if places is None:
        places = 0 if abs(found) >= 100 or found == int(found) else 1 if abs(found) >= 10 else 2
    return f'{found:,.{places}f}{" " if unit else ""}{unit}'


def megabits(bytes_per_second: Any) -> str:
    """Return a rate for people."""
    found = number(bytes_per_second)
    return shown(None if found is None else 8e-6 * found, 'Mbit/s')


def power(value: Any) -> str:
    """Return a relative difference as a power of ten."""
    found = number(value)
    return '–' if found is None else f'{found:.0e}'.replace('e-0', 'e-') if found else '0'


def section(name: str, title: str, *blocks: Block | None) -> dict[str, Any]:
    """Return a section; blocks that are None are left out."""
    return {'id': name, 'title': title, 'blocks': [block for block in blocks if block]}


def view_of(title: str, sections: Sequence[Mapping[str, Any]], **more: Any) -> dict[str, Any]:
    """Return a view, by default of a recording of one step."""
    return {'title': title, 'live': False, 'length': 1, 'at': 0, 'notes': [], 'options': [],
            'sections': sections, **more}


def headline(text: str, tone: str = WELL) -> Block:
    """Return a sentence that answers the section's question."""
    return {'kind': 'headline', 'text': cut(text), 'tone': tone}


def facts(rows: Iterable[tuple[str, Any]], caption: str = '') -> Block | None:
    """Return names with values; those that are empty or not known are left out."""
    kept = [[cut(name, 80), cut(value)] for name, value in rows
            if value is not None and str(value) not in ('', '–')]
    return {'kind': 'facts', 'rows': kept, 'caption': caption} if kept else None


def table(caption: str, head: Sequence[str], rows: Iterable[Sequence[Any]],
          ours: str = '') -> Block | None:
    """Return a table; `ours` is the first cell of the row that stands out."""
    kept = [[cut(cell) for cell in row] for row in rows]
    return {'kind': 'table', 'caption': caption, 'head': list(head), 'rows': kept,
            'ours': ours} if kept else None


def results(caption: str, first: str, columns: Mapping[str, Column],
            found: Iterable[tuple[str, Mapping[str, Any]]], ours: str = '') -> Block | None:
    """
    Return a table with a row for each of what was found by name; one that failed says by what.

    :param columns: by heading a key of the row, with its unit after a space, or what makes a text
        of the row; those in which no row has anything are left out.
    """
    every = [(name, row.get('failed'), [] if row.get('failed') else [
        _cell(row, each) for each in columns.values()]) for name, row in found]
    kept = [k for k in range(len(columns))
            if any(cells and cells[k] not in ('', '–') for _, _, cells in every)]
    return table(caption, [first, *([*columns][k] for k in kept)], (
        [name, f'failed: {failed}'] if failed else [name, *(cells[k] for k in kept)]
        for name, failed, cells in every), ours)


def facts_of(caption: str, columns: Mapping[str, Column], row: Mapping[str, Any],
             more: Iterable[tuple[str, Any]] = ()) -> Block | None:
    """Return what `columns`, as those of `results`, say of one row, and more names with values."""
    return facts([*((name, _cell(row, each)) for name, each in columns.items()), *more], caption)


def kilobytes(key: str) -> Column:
    """Return the column of a key that holds bytes."""
    return lambda row: shown(row[key] / 1e3, 'kB') if number(row.get(key)) is not None else ''


#: What is said of a frame that a robot had computed, live and recorded.
FRAME: Mapping[str, Column] = {
    'latency': 'latency_ms ms', 'predicted': 'predicted_ms ms', 'sent': kilobytes('bytes_up'),
    'received': kilobytes('bytes_down'), 'energy of the robot, modelled': 'energy_j J'}
ROWS = 'Who computed which rows: the robot the upper ones, the server the others'
#: What became of requests.
FATES: Mapping[str, Column] = {
    'in time': 'in_time', 'late': 'late', 'refused': 'refused', 'cancelled': 'cancelled',
    'lost': 'lost', 'waiting': 'waiting', 'p95': 'p95_ms ms', 'forwarded': 'transfers',
    'in vain': 'wasted'}


def _cell(row: Mapping[str, Any], column: Column) -> str:
    if callable(column):
        return column(row)
    key, _, unit = column.partition(' ')
    value = row.get(key)
    if isinstance(value, bool):
        return 'yes' if value else 'no'
    return str(value) if isinstance(value, str) or isinstance(value, int) and not unit else \
        shown(value, unit)


def remarks(texts: Iterable[str]) -> Block | None:
    """Return sentences; what stands between backticks is code."""
    kept = [cut(text, 1000) for text in texts if text]
    return {'kind': 'remarks', 'texts': kept} if kept else None


def line(caption: str, x: str, y: str, series: Mapping[str, Sequence[Point]], *,
         cursor: float | None = None, dashed: Sequence[str] = ()) -> Block | None:
    """
    Return curves of points (x, y) by name.

    :param cursor: where on the x axis the view stands.
    """
    drawn = {name: [[p[0], p[1]] for p in points
                    if number(p[0]) is not None and number(p[1]) is not None]
             for name, points in series.items()}
    drawn = {name: points for name, points in drawn.items() if points}
    if not drawn:
        return None
    tint = colours(drawn, dict(zip(drawn, (BLUE, ORANGE, GREEN, PURPLE, RED))))
    return {'kind': 'line', 'caption': caption, 'x': x, 'y': y, 'cursor': cursor, 'series': [
        {'name': cut(name, 60), 'points': points, 'colour': tint[name], 'dash': name in dashed}
        for name, points in drawn.items()]}


def frames(caption: str, parts: Mapping[str, str], rows: Sequence[Mapping[str, Any]],
           chosen: Any = None, pick: str = 'at') -> Block | None:
    """
    Return frames as bars of stacked parts; a choice of one is asked for by the name `pick`.

    :param parts: colours by name of part.
    :param rows: of each frame `id`, `text`, `values` in the order of the parts (ms), and what is
        known of `predicted` and `limit` (ms).
    """
    return {'kind': 'frames', 'caption': caption, 'chosen': chosen, 'pick': pick,
            'rows': list(rows), 'parts': [*map(list, parts.items())]} if rows else None


def gantt(caption: str, spans: Sequence[Sequence[Any]], unit: str = 'ms') -> Block | None:
    """Return a timeline of spans: lane, kind, name, start and stop (in `unit`)."""
    kept = [[cut(s[0], 60), cut(s[1], 20), cut(s[2], 120), s[3], s[4]] for s in spans[:MOST_SPANS]
            if number(s[3]) is not None and number(s[4]) is not None and s[3] <= s[4]]
    if not kept:
        return None
    lanes = list(dict.fromkeys(s[0] for s in kept))
    lanes.sort(key=lambda lane: list(LANES).index(lane) if lane in LANES else len(LANES))
    return {'kind': 'gantt', 'caption': caption, 'unit': unit, 'spans': kept,
            'lanes': list(colours(lanes, LANES).items())}


def bottleneck(spans: Sequence[Sequence[Any]]) -> str:
    """Return which lane of a timeline computes or sends the longest, '' if none does."""
    busy: dict[str, list[tuple[float, float]]] = {}
    for lane, kind, _, start, stop in spans:
        if kind != 'wait':
            busy.setdefault(lane, []).append((start, stop))
    if not busy:
        return ''
    whole = max(span[4] for span in spans) - min(span[3] for span in spans)
    lane = max(busy, key=lambda name: length(busy[name]))
    return f'{lane}, busy for {length(busy[lane]) / whole:.0%} of the frame' if whole > 0 else ''


def bands(caption: str, stages: Sequence[Sequence[float]], image: str = '',
          number: Any = 0) -> Block | None:
    """
    Return who computed which rows of each operator, and over an image of the last one's.

    :param stages: operator that a stage ends before, and the robot's share of the rows.
    :param image: the name of the image, '' for none; `number` says which one it is.
    """
    kept = [[stop, min(1.0, max(0.0, share))] for stop, share in stages]
    return {'kind': 'bands', 'caption': caption, 'stages': kept, 'image': image,
            'number': number, 'lanes': [LANES['robot'], LANES['server']]} \
        if kept or image else None


def machine(name: str, role: str, state: str, lines: Iterable[str]) -> dict[str, Any]:
    """Return a machine of the map."""
    return {'name': cut(name, 60), 'role': role, 'state': state,
            'lines': [cut(text, 120) for text in lines if text]}


def medium(name: str, ends: Iterable[str], text: str, state: str = WELL) -> dict[str, Any]:
    """Return what joins machines; `ends` are their names, none for all of them."""
    return {'name': cut(name, 60), 'ends': [cut(end, 60) for end in ends],
            'text': cut(text, 120), 'state': state}


def chart(machines: Sequence[Mapping[str, Any]], media: Sequence[Mapping[str, Any]],
          ) -> Block | None:
    """Return the map of machines and of what joins them."""
    return {'kind': 'map', 'machines': list(machines), 'media': list(media)} if machines else None
