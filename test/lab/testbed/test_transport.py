# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""``intradp bench transport``: both sides as processes, on a link with delay and losses."""
from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from intradp_lab.testbed.transport_bench import Job, targets_missed
from intradp_lab.testbed.transport_side import explained_ms
from intradp_ros.cli.main import main

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason='network namespaces need root')


@needs_root
def test_carriers_on_a_lossy_link(tmp_path: Path) -> None:
    assert main(['bench', 'transport', '--mbit', '10', '--loss', '0.005', '--delay', '2',
                 '--carriers', 'udp', 'tcp', '--repeat', '2', '--seconds', '1',
                 '--out', str(tmp_path)]) == 0
    result = json.loads((tmp_path / 'transport.json').read_text())
    rows = {row['carrier']: row for row in result['rows']}
    assert set(rows) == {'udp', 'tcp'} and result['tcp_congestion_control']
    for row in rows.values():
        assert 0 < row['goodput'] < 10.0 and row['share'] == pytest.approx(row['goodput'] / 10.0)
        assert 1.0 < row['wire'] < 2.0  # headers, and what is repeated
        assert set(row['beyond_ms']) == {'30000', '130000', '300000'}


def test_impossible_links_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(['bench', 'transport', '--medium', 'shared']) == 2
    assert 'bottleneck' in capsys.readouterr().err or os.geteuid() != 0


def test_bytes_explain_their_time() -> None:
    """What a link carries in a millisecond passes at once, the rest at its rate."""
    job = Job('tcp', 20.0, delay_ms=3.0)
    assert explained_ms(job, 2_500) == 3.0
    assert explained_ms(job, 27_500) == pytest.approx(3.0 + 10.0)


@pytest.mark.parametrize(('share', 'added', 'loss', 'count'), [
    (0.9, 2.0, 0.0, 0), (0.89, 2.1, 0.0, 2), (0.8, 9.0, 0.01, 0), (0.79, 0.0, 0.01, 1)])
def test_missed_targets_are_named(share: float, added: float, loss: float, count: int) -> None:
    assert len(targets_missed({'share': share, 'added_ms': added}, loss)) == count
