# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""The testbed without root and DDS: it runs, and nothing that it writes hides how."""
from __future__ import annotations

import json
from pathlib import Path

from imagined_devices import MODEL, profiles
import pytest

from intradp_lab.emulation.settings import LinkSettings
from intradp_lab.testbed.in_process import check_in_process, MARK
from intradp_lab.testbed.trial import load_seen
from intradp_ros.cli.main import main


@pytest.mark.slow
def test_systems_on_a_link_in_memory(
        tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words, out = profiles(tmp_path), tmp_path / 'out'
    capsys.readouterr()
    assert main(['bench', *MODEL, *words, '--link', '40', '--delay', '5', '--seconds', '1',
                 '--systems', 'local', 'offload', '--outages', '1.5', '--transport', 'in-process',
                 '--out', str(out)]) == 0
    said = ' '.join(capsys.readouterr().out.split())
    assert said.count(MARK) == 2  # both tables
    report = json.loads((out / 'report.json').read_text())
    assert report['transport'] == report['outages']['transport'] == MARK
    assert MARK in report['model']
    seen = {s.system: s for s in load_seen(out / 'seen.json')}
    alone, away = seen['local'], seen['offload']
    assert max(alone.bytes_up) == 0 and max(away.bytes_up) == 3 * 96 * 128
    # Bytes need their time on the link, and the delay there and back.
    least = (3 * 96 * 128 + min(away.bytes_down)) / (40 * 125e3) + 0.01
    assert min(t for t, shared in zip(away.latency, away.shared) if shared) > least
    (row,) = report['outages']['rows']
    assert row['frames'] >= 1 and report['outages']['recovered'] >= 1
    assert not sum(side['wrong'] for side in report['exactness']['arrived'].values())
    page = (out / 'report.html').read_text()
    assert page.count(MARK) >= 3 and 'namespaces' not in page and 'Fast DDS' not in page


@pytest.mark.parametrize('settings', [
    LinkSettings(jitter_ms=1.0), LinkSettings(loss=0.1),
    LinkSettings(medium='shared', bottleneck='access_point')])
def test_what_a_link_in_memory_cannot_be(settings: LinkSettings) -> None:
    with pytest.raises(ValueError, match='a rate and a delay, but no packets'):
        check_in_process(settings)


def test_the_command_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(['bench', *MODEL, '--link', '20', '--loss', '0.1', '--transport', 'in-process',
                 '--out', str(tmp_path / 'out')]) == 2
    assert 'no packets' in capsys.readouterr().err
