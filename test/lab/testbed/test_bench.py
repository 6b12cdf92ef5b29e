# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""A whole run of the testbed: processes, DDS, a shaped link with a trace, emulated devices."""
from __future__ import annotations

import json
import os
from pathlib import Path

from imagined_devices import MODEL, profiles
import pytest

from intradp_lab.testbed.trial import load_seen
from intradp_ros.cli.main import main
from intradp_ros.link.delay import OWN_DELAY
from intradp_ros.systems.sharing.book.book import ScheduleBook

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason='network namespaces need root')
SYSTEMS = ('local', 'offload', 'shared')


@pytest.mark.slow
@needs_root
def test_systems_on_a_trace(tmp_path: Path) -> None:
    trace = tmp_path / 'link.csv'
    trace.write_text('t_seconds,Mbps\n0,40\n1,20\n2,40\n')
    out = tmp_path / 'out'
    assert main(['bench', *MODEL, *profiles(tmp_path), '--link', str(trace), '--seconds', '3',
                 '--systems', *SYSTEMS, '--out', str(out)]) == 0
    report = json.loads((out / 'report.json').read_text())
    rows = report['systems']
    assert set(rows) == set(SYSTEMS) and report['bounds_ms']
    assert all(rows[system]['frames'] >= 3 for system in SYSTEMS)
    seen = {s.system: s for s in load_seen(out / 'seen.json')}
    assert max(seen['local'].bytes_up) == 0 and max(seen['offload'].bytes_up) == 3 * 96 * 128
    assert (out / 'trace.png').stat().st_size > 10_000
    # An operator cannot take less than its profile says.
    assert rows['local']['median_ms'] > 59.0
    # What ran is exact, bytes arrived as they were sent, and both sides reported what they did.
    checked = report['exactness']
    assert all(row['exact'] and row['checked'] for row in checked['systems'].values())
    assert checked['arrived']['server']['chunks'] and checked['arrived']['robot']['chunks']
    assert not sum(side['wrong'] for side in checked['arrived'].values())
    assert {event[0] for event in seen['offload'].timeline} == {
        'robot', 'uplink', 'server', 'downlink'}
    assert 0 < rows['offload']['transmission_share'] < 1
    page = (out / 'report.html').read_text()
    assert page.count('<svg') == 2 + len(SYSTEMS) and 'Yes: ' in page


def test_a_link_that_is_never_there_is_refused(
        tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(['bench', *MODEL, *profiles(tmp_path), '--link', '0', '--out',
                 str(tmp_path / 'out')]) == 2
    assert 'never carries anything' in capsys.readouterr().err


@pytest.mark.slow
@needs_root
def test_a_far_link_that_both_ways_share(tmp_path: Path) -> None:
    """Plans know of delay and medium; nothing comes sooner than the delay there and back."""
    out = tmp_path / 'out'
    assert main(['bench', *MODEL, *profiles(tmp_path), '--link', '40', '--seconds', '1',
                 '--delay', '20', '--jitter', '1', '--medium', 'shared', '--systems', 'offload',
                 '--transport', 'udp', '--out', str(out)]) == 0
    book = ScheduleBook.load(out / 'book.json')
    assert book.delay == pytest.approx(OWN_DELAY + 0.021) and book.shared_air
    report = json.loads((out / 'report.json').read_text())
    assert report['link']['delay_ms'] == 20.0 and report['link']['bottleneck'] == 'access_point'
    (seen,) = load_seen(out / 'seen.json')
    assert min(latency for latency, shared in zip(seen.latency, seen.shared) if shared) > 0.04
    page = (out / 'report.html').read_text()
    assert 'the rate of both ways together' in page and '20 ms of delay each way' in page


@pytest.mark.parametrize('words, text', [
    (['--link', '20'], 'profile is missing'), (['--link', '20', '--seconds', '0'], 'above 0'),
    (['--link', '20', '--loss', '1.5'], '--loss: must be 0 to 0.99, not 1.5'),
    (['--link', '20', '--delay', '-1'], '--delay: must be 0 to'),
    (['--link', '20', '--medium', 'shared', '--bottleneck', 'sender'], 'shared medium needs'),
    (['--link', '20', '--overhead', '-1'], '--overhead: must be 0 to')])
def test_what_cannot_be_run_is_refused(
        words: list[str], text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(['bench', *MODEL, *words, '--out', str(tmp_path / 'out')]) == 2
    assert text in capsys.readouterr().err
