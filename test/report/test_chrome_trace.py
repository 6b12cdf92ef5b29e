# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""Traces are what the Trace Event Format asks for, and say what was measured."""
from __future__ import annotations

from collections import defaultdict
import json
from pathlib import Path
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
import pytest

from intradp_ros.cli.main import main
from intradp_ros.report.chrome_trace import chrome_trace, TracedFrame
from intradp_ros.report.spans import length
from intradp_ros.runtime.transport.timeline import Event

ROUNDING = 0.01  # microseconds


def spans_of(trace: dict[str, Any]) -> list[dict[str, Any]]:
    return [event for event in trace['traceEvents'] if event['ph'] == 'X']


def check(trace: dict[str, Any]) -> None:
    """Check what the format demands of complete and flow events."""
    by_track = defaultdict(list)
    for event in spans_of(trace):
        assert event['dur'] >= 0 and event['name'] and event['pid'] > 0
        by_track[event['pid'], event['tid']].append((event['ts'], event['ts'] + event['dur']))
    for found in by_track.values():
        found.sort()
        assert all(one[1] <= other[0] + ROUNDING for one, other in zip(found, found[1:]))
    flows = defaultdict(list)
    for event in trace['traceEvents']:
        if event['ph'] in 'sf':
            flows[event['id']].append(event)
            assert any(start - ROUNDING <= event['ts'] <= stop + ROUNDING
                       for start, stop in by_track[event['pid'], event['tid']])
    for begin, end in flows.values():
        assert (begin['ph'], end['ph']) == ('s', 'f') and begin['ts'] <= end['ts'] + ROUNDING
    json.dumps(trace, allow_nan=False)


EVENTS = st.lists(st.builds(
    lambda lane, kind, name, start, length: Event(lane, kind, name, start, start + length),
    st.sampled_from(('robot', 'server', 'uplink', 'downlink', 'box')),
    st.sampled_from(('compute', 'wait', 'transfer')), st.sampled_from(('conv2d', 'x[0:4]', 'é')),
    st.floats(-0.1, 1.0), st.floats(0.0, 0.5)), min_size=1, max_size=40)


@settings(max_examples=200, deadline=None)
@given(st.lists(EVENTS, min_size=1, max_size=3))
def test_any_spans_make_a_trace(frames: list[list[Event]]) -> None:
    trace = chrome_trace([TracedFrame(n, 2.0 * n, spans) for n, spans in enumerate(frames)], 'any')
    check(trace)
    assert len(spans_of(trace)) == sum(map(len, frames))
    for (n, spans), event in zip(((n, s) for n, f in enumerate(frames) for s in f),
                                 spans_of(trace)):
        assert event['ts'] == pytest.approx(1e6 * (2.0 * n + spans.start))
        assert event['args']['of'] == spans.name


def test_a_transfer_is_joined_to_who_sent_and_who_took_it() -> None:
    trace = chrome_trace([TracedFrame(7, 100.0, [
        Event('robot', 'compute', 'conv2d', 0.0, 0.1), Event('uplink', 'transfer', 'x', 0.1, 0.2),
        Event('server', 'compute', 'conv2d', 0.25, 0.3)])], 'one')
    check(trace)
    flows = [(e['ph'], e['pid'], round(e['ts'])) for e in trace['traceEvents'] if e['ph'] in 'sf']
    assert flows == [('s', 1, 100000), ('f', 2, 100000), ('s', 2, 200000), ('f', 3, 250000)]


def joined(trace: dict[str, Any]) -> list[bool]:
    """Return for each transfer of a frame whether flows lead to it and from it."""
    ends = {(e['id'].split('.', 1)[1], e['ph']): e
            for e in trace['traceEvents'] if e['ph'] in 'sf'}
    return [all((flow := ends.get((f'{k}.{end}', phase))) and flow['tid'] == span['tid']
                and -ROUNDING <= flow['ts'] - span['ts'] <= span['dur'] + ROUNDING
                and (f'{k}.{end}', {'f': 's', 's': 'f'}[phase]) in ends
                for end, phase in ((0, 'f'), (1, 's')))
            for k, span in enumerate(spans_of(trace)) if span['cat'] == 'transfer']


def test_a_transfer_is_joined_where_a_device_only_waits() -> None:
    trace = chrome_trace([TracedFrame(7, 0.0, [
        Event('uplink', 'transfer', 'x', 0.0, 0.1), Event('robot', 'wait', '0', 0.05, 0.5),
        Event('server', 'compute', 'conv2d', 0.1, 0.3),
        Event('server', 'compute', 'relu', 0.3, 0.4),
        Event('downlink', 'transfer', 'y', 0.35, 0.5),
        Event('uplink', 'transfer', 'late', 0.32, 0.42)])], 'one')
    check(trace)
    assert joined(trace) == [True] * 3


def test_nothing_recorded_is_an_error() -> None:
    with pytest.raises(ValueError, match='no inference'):
        chrome_trace([], 'none')


@pytest.mark.slow
def test_a_frame_of_hed_sums_to_its_latency(tmp_path: Path,
                                            capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / 'trace.json'
    assert main(['run', 'intradp_lab.zoo.hed:hed', '--input', '1x3x144x336', '--dtype', 'uint8',
                 '--mbps', '20', '--frames', '1', '--mode', 'shared', '--trace', str(path),
                 '--json']) == 0
    latency = json.loads(capsys.readouterr().out)['modes']['shared']['median_ms']
    trace = json.loads(path.read_text())
    check(trace)
    [robot] = [e['pid'] for e in trace['traceEvents']
               if e['name'] == 'process_name' and e['args']['name'] == 'robot']
    own = [(e['ts'], e['ts'] + e['dur']) for e in spans_of(trace) if e['pid'] == robot]
    assert 1e-3 * length(own) == pytest.approx(latency, rel=0.02)
    assert joined(trace) and all(joined(trace))


def test_a_shared_inference_of_run_is_written_as_a_trace(
        tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str],
        ) -> None:
    monkeypatch.syspath_prepend(str(Path(__file__).parents[1] / 'cli'))
    path = tmp_path / 'trace.json'
    assert main(['run', 'example_models:dense', '--input', '1x3x96x64', '--mbps', '50',
                 '--frames', '3', '--mode', 'shared', '--trace', str(path), '--json']) == 0
    capsys.readouterr()
    trace = json.loads(path.read_text())
    check(trace)
    lanes = {e['args']['name'] for e in trace['traceEvents'] if e['name'] == 'process_name'}
    assert 'robot' in lanes and spans_of(trace)
