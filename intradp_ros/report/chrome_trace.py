# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""
Write what happened in inferences as a Chrome trace, which ui.perfetto.dev and Chrome open.

The format: "Trace Event Format", object form with complete (``X``), metadata
(``M``) and flow (``s``, ``f``) events; times are microseconds.  Each device
and each direction of the link is a process; spans that overlap in one lie on
tracks of their own, as the format wants it.  A flow leads from what a device
computed last before a transfer to the transfer, and from there to what its
receiver computed first afterwards; where it computed nothing, to its waiting.
"""
from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
import json
from pathlib import Path
from typing import Any

from intradp_ros.core.atomic_write import write_atomically
from intradp_ros.report.operator_names import readable
from intradp_ros.report.palette import LANES
from intradp_ros.report.spans import SpanLike, tracks

#: Sender and receiver of each direction of the link.
ENDS = {'uplink': ('robot', 'server'), 'downlink': ('server', 'robot')}
#: Seconds of overlap that are taken for rounding.
_ROUNDING = 1e-9
_TRACKS = 1000  # numbers of tracks of one process


@dataclass(frozen=True)
class TracedFrame:
    """One inference of a trace."""

    number: int  # as topics and diagnostics count
    begin: float  # seconds on the clock of all frames of the trace
    spans: Sequence[SpanLike]  # times from `begin`, seconds


def chrome_trace(frames: Sequence[TracedFrame], title: str) -> dict[str, Any]:
    """
    Return the trace of frames as plain data.

    :raises ValueError: if there is no span in any frame.
    """
    spans = [span for frame in frames for span in frame.spans]
    if not spans:
        raise ValueError('no inference was recorded: a trace needs one')
    found = dict.fromkeys(span.lane for span in spans)
    ordered = sorted(found, key=lambda lane: [*LANES].index(lane) if lane in LANES else len(LANES))
    lanes = {lane: number for number, lane in enumerate(ordered, 1)}
    events = [event for lane, number in lanes.items() for event in (
        {'ph': 'M', 'name': 'process_name', 'pid': number, 'args': {'name': lane}},
        {'ph': 'M', 'name': 'process_sort_index', 'pid': number, 'args': {'sort_index': number}})]
    zero = min(frame.begin for frame in frames)
    for frame in frames:
        events += _frame_events(frame, frame.begin - zero, lanes)
    return {'traceEvents': events, 'displayTimeUnit': 'ms', 'otherData': {'title': title}}


def write_trace(path: Path, frames: Sequence[TracedFrame], title: str) -> None:
    """Write the trace of frames; ValueError as `chrome_trace`."""
    write_atomically(path, json.dumps(chrome_trace(frames, title), separators=(',', ':')) + '\n')


def _frame_events(frame: TracedFrame, shift: float, lanes: dict[str, int],
                  ) -> Iterator[dict[str, Any]]:
    """Yield the spans of a frame, and its flows."""
    places: dict[int, dict[str, Any]] = {}
    for lane, process in lanes.items():
        own = [span for span in frame.spans if span.lane == lane]
        for span, (track, _) in zip(own, tracks(own, -_ROUNDING)):
            places[id(span)] = {'pid': process, 'tid': process * _TRACKS + track}
    for span in frame.spans:
        yield {'ph': 'X', 'cat': span.kind, 'name': readable(span.name) or span.kind,
               **places[id(span)], 'ts': 1e6 * (shift + span.start),
               'dur': 1e6 * (span.stop - span.start),
               'args': {'frame': frame.number, 'kind': span.kind, 'of': span.name}}
    for number, span in enumerate(frame.spans):
        if span.lane not in ENDS:
            continue
        source, sink = ([each for each in frame.spans if each.lane == device]
                        for device in ENDS[span.lane])
        sent = _last(each for each in source if each.start <= span.start) \
            or _first(each for each in source if each.start <= span.stop)
        taken = _first(each for each in sink if each.start >= span.stop) \
            or _last(each for each in sink if each.stop >= span.start)
        for end, (one, other) in enumerate(((sent, span), (span, taken))):
            if one is None or other is None:
                continue
            flow = {'cat': 'transfer', 'name': readable(span.name),
                    'id': f'{frame.number}.{number}.{end}'}
            begin = min(one.stop, other.stop if end else max(one.start, other.start))
            yield {'ph': 's', **flow, **places[id(one)], 'ts': 1e6 * (shift + begin)}
            yield {'ph': 'f', 'bp': 'e', **flow, **places[id(other)],
                   'ts': 1e6 * (shift + max(begin, other.start))}


def _last(spans: Iterable[SpanLike]) -> SpanLike | None:
    """Return the span that begins last, one that computes if there is one."""
    return max(spans, key=lambda span: (span.kind == 'compute', span.start), default=None)


def _first(spans: Iterable[SpanLike]) -> SpanLike | None:
    """Return the span that begins first, one that computes if there is one."""
    return min(spans, key=lambda span: (span.kind != 'compute', span.start), default=None)
