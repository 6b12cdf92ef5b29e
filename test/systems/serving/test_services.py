# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""services.yaml, tables, batches, streams, and the draw of a site."""
from __future__ import annotations

import math

import numpy as np
import pytest

from intradp_ros.runtime.requests.infer_requests import InferRequest
from intradp_ros.systems.serving.allocator import category, largest_batch, may_share, replicas
from intradp_ros.systems.serving.service import parse_services, Service, ServicesError
from intradp_ros.systems.serving.service_table import exact_table, learnt, ServiceTable
from intradp_ros.systems.serving.site_functions import PLAIN, site_functions
from intradp_ros.systems.serving.site_kernels.dispatch import (
    make_rows,
    note_sent,
    slacks,
    splitmix,
)
from intradp_ros.systems.serving.streams import Stream, StreamError

TEXT = """
services:
  pi0:
    model: policy.pt2
    deadline: 150 ms
    rate: 5
    keep: newest
    batches: [1, 2, 4]
  detector:
    model: emulated
    deadline: 0.1 s
    inputs: {image: uint8 4x4x3}
    outputs: {boxes: float32 10x4}
    seconds: {1: 10 ms, 3: 20 ms}
"""


def test_a_file_of_services():
    pi0, detector = parse_services(TEXT)
    assert pi0 == Service('pi0', 'policy.pt2', deadline=0.15, rate=5.0, keep='newest',
                          batches=(1, 2, 4))
    assert detector.seconds == pytest.approx((0.01, 0.015, 0.02))
    assert detector.batches == (1, 2, 3)
    assert detector.inputs[0].shape == (4, 4, 3) and detector.inputs[0].nbytes == 48
    assert detector.outputs[0].nbytes == 160


@pytest.mark.parametrize('old, new, line, cause', [
    ('deadline: 150 ms', 'deadline: -1 ms', 5, 'deadline: write a time'),
    ('deadline: 150 ms', 'deadline: nan s', 5, 'write a time'),
    ('rate: 5', 'rate: none', 6, 'write a number above'),
    ('keep: newest', 'keep: old', 7, 'write one of: all, newest'),
    ('[1, 2, 4]', '[2, 4]', 8, 'sizes of batches'),
    ('uint8 4x4x3', 'object 4', 12, 'dtype and shape'),
    ('uint8 4x4x3', 'uint8 999999999x9', 12, 'bytes'),
    ('3: 20 ms', '3: 5 ms', 14, 'a larger batch'),
    ('    inputs: {image: uint8 4x4x3}\n', '', 13, 'add "inputs"'),
    ('model: policy.pt2', 'modell: x', 4, 'unknown'),
    ('model: policy.pt2', 'model: "  "', 4, 'write a text'),
    ('model: policy.pt2', 'model: emulated', 4, 'add "seconds"'),
    ('model: emulated', 'model: policy.pt2', 14, 'write "model: emulated"'),
    ('pi0:', 'sites:', 4, 'is none of sites'), ('pi0:', 'health:', 4, 'is none of sites'),
    ('pi0:', f'{"p" * 65}:', 4, '1 to 64 letters'), ('pi0:', '../pi0:', 4, '1 to 64 letters'),
    ('rate: 5', 'priority: 0.5', 6, 'a whole number'),
    ('[1, 2, 4]', '[1, ²]', 8, 'sizes of batches'), ('[1, 2, 4]', '[1, ٢]', 8, 'sizes'),
    ('{1: 10 ms, 3', '{1: 10 ms, "²"', 14, 'times by rows'),
    ('    seconds', '    batches: [1, 4]\n    seconds', 14, 'add the time of 4'),
    ('    seconds', '    ignore: [image]\n    seconds', 14, "'image' is an input"),
    ('{image: uint8', '{priority: uint8', 12, 'rename it'),
    ('{boxes: float32', '{serving: float32', 13, 'rename it'),
])
def test_errors_name_line_and_fix(old, new, line, cause):
    with pytest.raises(ServicesError, match=f'services.yaml:{line}: .*{cause}'):
        parse_services(TEXT.replace(old, new))


def test_a_priority_may_be_below_0():
    assert parse_services(TEXT.replace('rate: 5', 'priority: -3'))[0].priority == -3


def test_an_empty_file_says_what_is_wanted():
    with pytest.raises(ServicesError, match='is empty: name services'):
        parse_services('')


def test_tables_learn_and_one_pause_does_not_close_a_service():
    table = exact_table((0.01, 0.02))
    chance = np.random.default_rng(0)
    for seconds in chance.normal(0.03, 0.003, 500):
        table = learnt(table, 2, seconds)
    assert table.seconds[0] == 0.01
    assert table.seconds[1] == pytest.approx(0.03, rel=0.05)
    assert 0.034 < table.quantile(2) < 0.039
    assert learnt(table, 2, 3.0).quantile(2) < 1.2 * table.quantile(2)
    assert learnt(table, 2, math.nan) == table
    with pytest.raises(ValueError, match='above 0'):
        ServiceTable((0.0,), (0.0,))


def test_sizes_of_batches_and_who_shares():
    table = exact_table([0.01 * (0.8 + 0.2 * b) for b in range(1, 9)])
    assert largest_batch(table, 0.048) == 8
    assert largest_batch(table, 0.047) == 7
    assert largest_batch(table, 0.047, (1, 2, 4, 8)) == 4
    assert largest_batch(table, 0.001) == 1
    assert may_share(table, 8, 0.05, table, 8, 0.048)
    assert not may_share(table, 8, 0.05, table, 8, 0.047)
    assert replicas(700, table, 8) == 3


def test_a_sensor_is_told_from_people_by_the_gaps():
    service = Service('a', 'm')
    assert category(service, [0.1 * k for k in range(20)]) == 'frequency'
    assert category(service, np.cumsum(np.random.default_rng(0).exponential(1, 50)).tolist()) \
        == 'latency'
    assert category(Service('a', 'm', kind='frequency'), []) == 'frequency'


def test_ends_leave_in_the_order_of_frames():
    stream = Stream()
    for frame in (3, 5, 6):
        assert stream.came(frame, 0.0) == ([], False)
    assert stream.ended(5, 'b') == [] and stream.ended(5, 'twice') == []
    assert stream.ended(3, 'a') == [(3, 'a'), (5, 'b')]
    assert stream.ended(6, 'c') == [(6, 'c')] and stream.idle
    assert stream.ended(6, 'late') == []
    with pytest.raises(StreamError, match='frame 6 came after frame 6'):
        stream.came(6, 1.0)


def test_newer_frames_replace_waiting_ones():
    stream = Stream(keep='newest')
    stream.came(1, 0.0)
    stream.started(1)
    stream.came(2, 0.1)
    assert stream.came(3, 0.2) == ([2], False)
    assert stream.ended(2, 'replaced') == []
    assert stream.ended(1, 'x') == [(1, 'x'), (2, 'replaced')]


def test_frames_above_the_declared_rate_are_told():
    stream = Stream(rate=10.0)
    assert not any(stream.came(k, 0.1 * k)[1] for k in range(50))
    assert sum(stream.came(100 + k, 10 + 0.05 * k)[1] for k in range(100)) \
        == pytest.approx(50, abs=3)


def test_sites_are_drawn_by_slack():
    rows = make_rows(4, 2)
    rows.ends[:, 1] = 0.02, 0.08, 0.2, 0.02
    rows.least[:, 1] = 0.01
    rows.shares[:, 1] = 0.005
    rows.made[:] = 0.0
    visited = np.array([False, False, False, True])
    drawn = np.bincount([PLAIN.choose_site(rows, 1, 0.1, visited, k, 0.0)
                         for k in range(4000)], minlength=4)
    assert drawn[2] == drawn[3] == 0
    assert drawn[0] / drawn[1] == pytest.approx(4, rel=0.15)
    for function in (PLAIN, site_functions()):
        assert function.choose_site(rows, 0, 9.0, visited, 5, 0.0) == -1
        assert [function.choose_site(rows, 1, 0.1, visited, k, 0.05) for k in range(50)] == \
            [PLAIN.choose_site(rows, 1, 0.1, visited, k, 0.05) for k in range(50)]
    for _ in range(10):
        note_sent(rows, 0, 1)
    slacks(rows, 1, 0.1, visited, 0.05)
    assert rows.slack.tolist() == pytest.approx([0.04, 0.07, 0, 0])


@pytest.mark.parametrize('number', [0, 2**60 + 1, 2**62, 2**63 - 1])
def test_any_number_of_chance_draws_the_same_site_in_machine_code_and_plain_python(number):
    rows = make_rows(4, 1)
    rows.ends[1:], rows.least[1:] = 0.01, 0.01
    visited = np.array([True, False, False, False])
    found = [f.choose_site(rows, 0, 1.0, visited, number, 0.0)
             for f in (PLAIN, site_functions())]
    assert found[0] == found[1] > 0


def test_drawn_numbers_are_even():
    drawn = np.array([splitmix(k) for k in range(20000)])
    assert np.histogram(drawn, 10, (0, 1))[0] == pytest.approx(np.full(10, 2000), rel=0.1)
    assert splitmix((1 << 62) + 5) != splitmix(5)


@pytest.mark.parametrize('change, cause', [
    ({'remaining': -1.0}, 'must not be negative'), ({'remaining': math.nan}, 'nan'),
    ({'priority': 1 << 40}, 'priority'), ({'service': 'x' * 300}, 'service'),
    ({'tensors': {'a': np.array([object()])}}, 'dtype object'),
    ({'tensors': {'a': np.array(['text'])}}, 'dtype'),
])
def test_bad_requests_name_the_field(change, cause):
    with pytest.raises(ValueError, match=cause):
        InferRequest(**{'service': 's', 'tensors': {}} | change)
