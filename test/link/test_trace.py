# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

from pathlib import Path

from hypothesis import assume, given, settings
from hypothesis import strategies as st
import pytest

from intradp_lab.emulation.trace import constant, LinkTrace, read_trace

STEPS = LinkTrace((0.0, 1.0, 3.0), (10.0, 0.0, 30.0))


@pytest.mark.parametrize('seconds, mbps', [
    (0.0, 10.0), (0.99, 10.0), (1.0, 0.0), (2.5, 0.0), (3.0, 30.0), (4.99, 30.0), (5.0, 10.0),
    (11.5, 0.0)])
def test_each_rate_lasts_until_the_next_and_the_trace_repeats(seconds: float, mbps: float) -> None:
    assert STEPS.duration == 5.0
    assert STEPS.rate_at(seconds) == mbps


def test_resampling_keeps_order_and_duration() -> None:
    fine = STEPS.resampled(0.5)
    assert fine.mbps == (10, 10, 0, 0, 0, 0, 30, 30, 30, 30)
    assert fine.duration == pytest.approx(STEPS.duration)


@settings(max_examples=50)
@given(st.lists(st.tuples(st.floats(0.01, 2.0), st.floats(0.0, 400.0)), min_size=1, max_size=30),
       st.floats(0.0, 1.0))
def test_a_part_has_the_rates_of_the_whole(steps: list[tuple[float, float]], at: float) -> None:
    times = [0.0]
    for length, _ in steps[:-1]:
        times.append(times[-1] + length)
    trace = LinkTrace(tuple(times), tuple(rate for _, rate in steps))
    start = at * times[-1]
    assume(all(start == time or abs(start - time) > 1e-6 for time in times))
    part = trace.part(start, 1.0)
    for offset, rate in part:
        assert rate == trace.rate_at(start + offset + 1e-9)


def test_a_file_is_read(tmp_path: Path) -> None:
    path = tmp_path / 'trace.csv'
    path.write_text('t_seconds,Mbps\n2.0,34.84\n2.169,35.00\n')
    trace = read_trace(path)
    assert trace.times == pytest.approx((0.0, 0.169)) and trace.mbps == (34.84, 35.0)
    assert constant(20.0).rate_at(1e6) == 20.0


def test_a_file_may_carry_the_mark_of_a_spreadsheet(tmp_path: Path) -> None:
    path = tmp_path / 'trace.csv'
    path.write_text('t_seconds,Mbps\n0,5\n', encoding='utf-8-sig')
    assert read_trace(path) == constant(5.0)


@pytest.mark.parametrize('text', [
    '', 't_seconds,Mbps\n', 'time,rate\n0,1\n', 't_seconds,Mbps\n0,fast\n',
    't_seconds,Mbps\n0,1\n0,2\n', 't_seconds,Mbps\n0,-1\n', 't_seconds,Mbps\n0,nan\n',
    't_seconds,Mbps\n0\n', 't_seconds;Mbps\n0;1\n', 't_seconds,Mbps\n0,1\n1e308,1\n',
    f't_seconds,Mbps\n0,"{"9" * 200_000}"\n', '\x80\xff'])
def test_what_is_no_trace_is_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / 'trace.csv'
    path.write_text(text, encoding='latin-1')
    with pytest.raises(ValueError, match='not a link trace'):
        read_trace(path)
