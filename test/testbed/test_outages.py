# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""What outages did to a run: from what was seen, and in a run over real DDS."""
from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from intradp_ros.cli.main import main
from intradp_ros.link.trace import LinkTrace
from intradp_ros.testbed.outages import outages, spans, with_outages
from intradp_ros.testbed.trial import load_seen, Seen

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason='network namespaces need root')
MODEL = ('intradp_ros.zoo.dense:depth', '--input', '1x3x96x128', '--dtype', 'uint8')


def test_a_trace_with_outages() -> None:
    trace = with_outages(20.0, [0.5, 2.0], 3.0)
    assert list(spans(trace, 100.0)) == [(3.0, 3.5), (6.5, 8.5)]
    assert list(spans(trace, 8.0)) == [(3.0, 3.5)]
    assert trace.rate_at(9.0) == 20.0 and trace.rate_at(7.0) == 0.0


def test_frames_of_an_outage() -> None:
    """The frame that was at hand when it began counts; the first shared one tells the return."""
    seen = Seen('shared', at=[0.0, 0.9, 1.4, 2.1, 2.3, 3.2],
                latency=[0.1, 0.5, 0.3, 0.1, 0.1, 0.1],
                shared=[True, False, False, False, True, True],
                recovered=[False, True, False, False, False, False])
    trace = LinkTrace((0.0, 1.0, 2.0, 3.0, 3.1), (20.0, 0.0, 20.0, 0.0, 20.0))
    first, second = outages(seen, trace)
    assert (first.begin, first.end, first.frames, first.worst) == (1.0, 2.0, 2, 0.5)
    assert first.back == pytest.approx(0.3)
    assert (second.frames, second.worst, second.back) == (0, 0.0, pytest.approx(0.1))


@needs_root
def test_no_frame_is_lost_and_sharing_comes_back(tmp_path: Path) -> None:
    """A run on emulated devices whose link fails for 1.5 s."""
    measured, words = tmp_path / 'here.json', []
    assert main(['profile', *MODEL, '-o', str(measured)]) == 0
    for side, seconds in (('robot', 0.06), ('server', 0.006)):
        data = json.loads(measured.read_text())
        data.update(scale=data['scale'] * seconds / data['whole_seconds'], whole_seconds=seconds)
        (tmp_path / f'{side}.json').write_text(json.dumps(data))
        words += [f'--{side}-profile', str(tmp_path / f'{side}.json')]
    trace, out = with_outages(40.0, [1.5], 2.0), tmp_path / 'out'
    (tmp_path / 'link.csv').write_text('\n'.join(
        ['t_seconds,Mbps', *(f'{t},{rate}' for t, rate in trace)]))
    assert main(['bench', *MODEL, *words, '--link', str(tmp_path / 'link.csv'), '--seconds', '8',
                 '--systems', 'shared', '--transport', 'udp', '--out', str(out)]) == 0
    (seen,) = load_seen(out / 'seen.json')
    (outage,) = outages(seen, trace)
    assert outage.frames >= 1 and sum(seen.recovered) >= 1
    assert outage.back is not None
    # The frames follow each other without a gap.
    assert all(after >= at + latency for at, latency, after in
               zip(seen.at, seen.latency, seen.at[1:]))
