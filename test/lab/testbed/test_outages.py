# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""What outages did to a run: from what was seen, and in a run over real DDS."""
from __future__ import annotations

import json
import os
from pathlib import Path

from imagined_devices import MODEL, profiles
import pytest

from intradp_lab.emulation.trace import LinkTrace
from intradp_lab.testbed.outages import Outage, outage_figures, outages, spans, with_outages
from intradp_lab.testbed.trial import load_seen, Seen
from intradp_ros.cli.main import main

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason='network namespaces need root')


def test_a_trace_with_outages() -> None:
    trace = with_outages(20.0, [0.5, 2.0], 3.0)
    assert list(spans(trace, 100.0)) == [(3.0, 3.5), (6.5, 8.5)]
    assert list(spans(trace, 8.0)) == [(3.0, 3.5)]
    assert trace.rate_at(9.0) == 20.0 and trace.rate_at(7.0) == 0.0


def test_frames_of_an_outage() -> None:
    """The frame that was at hand when it began counts; the first shared one marks the return."""
    seen = Seen('shared', at=[0.0, 0.9, 1.4, 2.1, 2.3, 3.2],
                latency=[0.1, 0.5, 0.3, 0.1, 0.1, 0.1],
                shared=[True, False, False, False, True, True],
                recovered=[False, True, False, False, False, False])
    trace = LinkTrace((0.0, 1.0, 2.0, 3.0, 3.1), (20.0, 0.0, 20.0, 0.0, 20.0))
    first, second = outages(seen, trace)
    assert (first.begin, first.end, first.frames, first.worst) == (1.0, 2.0, 2, 0.5)
    assert first.back == pytest.approx(0.3)
    assert (second.frames, second.worst, second.back) == (0, 0.0, pytest.approx(0.1))


def test_what_is_wanted_of_an_outage() -> None:
    seen = Seen('shared', at=[0.0, 0.9, 2.1, 3.2, 4.9],
                latency=[0.1, 0.5, 0.6, 0.1, 0.1], shared=[True, False, True, True, True],
                recovered=[False, True, False, False, False])
    trace = LinkTrace((0.0, 1.0, 2.0, 2.5, 3.0), (20.0, 0.0, 20.0, 0.0, 20.0))
    found = outage_figures(seen, trace, 0.2, 0.3)
    assert found['limit_ms'] == pytest.approx(520.0)
    assert (found['frames'], found['shared'], found['recovered']) == (5, 4, 1)
    first, second = found['rows']
    assert (first['frames'], first['worst_ms'], first['missed']) == (1, 500.0, [])
    assert second['worst_ms'] == 600.0 and second['missed'] == ['took too long']
    assert Outage(0.0, 1.0, 1, 0.1, 1.5).missed(0.5) == ['shared again late']
    assert Outage(0.0, 1.0, 1, 0.1, None).missed(0.5) == ['did not share again']


@pytest.mark.parametrize('seconds, why', [
    (['0.01'], 'must be 0.1 to 300, not 0.01'), (['-1'], 'must be 0.1 to 300, not -1'),
    (['nan'], 'must be 0.1 to 300, not nan'), (['200', '200'], 'outages must last 0.1 to 300')])
def test_outages_that_cannot_be_run_are_refused(
        seconds: list[str], why: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(['bench', *MODEL, '--link', '20', '--outages', *seconds, '--out',
                 str(tmp_path / 'out')]) == 2
    assert why in capsys.readouterr().err


@pytest.mark.slow
@needs_root
def test_no_frame_is_lost_and_sharing_comes_back(tmp_path: Path) -> None:
    """A run on emulated devices whose link fails for 1.5 s."""
    out = tmp_path / 'out'
    assert main(['bench', *MODEL, *profiles(tmp_path), '--link', '40', '--seconds', '1',
                 '--systems', 'shared', '--outages', '1.5', '--transport', 'udp',
                 '--out', str(out)]) == 0
    (seen,) = load_seen(out / 'outages' / 'seen.json')
    found = json.loads((out / 'report.json').read_text())['outages']
    (row,) = found['rows']
    assert (row['begin_s'], row['seconds'], found['mbps']) == (3.0, 1.5, 40.0)
    assert row['frames'] >= 1 and found['recovered'] == sum(seen.recovered) >= 1
    assert row['back_s'] is not None
    assert 'When the link fails' in (out / 'report.html').read_text()
    # The frames follow each other without a gap.
    assert all(after >= at + latency for at, latency, after in
               zip(seen.at, seen.latency, seen.at[1:]))
