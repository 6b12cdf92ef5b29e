# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""``intradp bench fleet``: one setting and one replay, as data, page and picture."""
import json

import pytest

from intradp_ros.cli.main import main


@pytest.mark.slow
def test_the_report_is_there_and_no_frame_is_lost(tmp_path, capsys):
    assert main(['bench', 'fleet', '--smoke', '--out', str(tmp_path / 'out'), '--json']) == 0
    report = json.loads(capsys.readouterr().out)
    assert report == json.loads((tmp_path / 'out' / 'fleet.json').read_text())
    row, = report['plans']
    assert row['gain'] >= 1 - 1e-9 and row['contention_lost'] >= 1 - 1e-9
    total = report['adapter_total']
    assert total['lost'] == 0 and total['oracle_missed_s'] <= total['adapter_missed_s']
    assert total['pause_frames'] <= 1
    page = (tmp_path / 'out' / 'page.html').read_text()
    assert 'smart home 2' in page and 'box leaves in a burst' in page
    assert (tmp_path / 'out' / 'gantt.png').read_bytes()[:4] == b'\x89PNG'
