# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""The demo: from the command to the report, and what it does to folders that are not its own."""
from __future__ import annotations

import json
import math
from pathlib import Path

import pytest
from rich.console import Console

from intradp_lab.cli.claimed_folder import claim_folder
from intradp_lab.cli.demo import _all_well, compared, RESULTS
from intradp_ros.cli.main import main

KEYS = {'frames', 'lost', 'shared', 'recovered', 'median_ms', 'p95_ms', 'answer_median_ms',
        'bytes_up', 'bytes_down', 'energy_j', 'energy_source', 'max_rel_diff', 'top5_equal',
        'predicted_ms', 'predicted_rate_mbps'}


def test_a_folder_of_somebody_else_is_refused(tmp_path: Path) -> None:
    kept = tmp_path / 'thesis.txt'
    kept.write_text('three years')
    assert main(['demo', '--out', str(tmp_path)]) == 2
    assert kept.read_text() == 'three years' and list(tmp_path.iterdir()) == [kept]


def test_only_own_results_are_removed(tmp_path: Path) -> None:
    folder = tmp_path / 'new' / 'demo'
    claim_folder(folder, 'intradp_demo', RESULTS)
    elsewhere = tmp_path / 'elsewhere'
    elsewhere.mkdir()
    (elsewhere / 'kept').touch()
    (folder / 'logs').symlink_to(elsewhere)
    (folder / 'report.json').touch()
    (folder / 'hed').mkdir()
    (folder / 'hed' / 'last.npz').touch()
    (folder / 'notes.txt').touch()
    claim_folder(folder, 'intradp_demo', RESULTS)
    assert sorted(p.name for p in folder.iterdir()) == ['.intradp_demo', 'notes.txt']
    assert (elsewhere / 'kept').exists()


def mode(**values: object) -> dict[str, object]:
    return {'lost': 0, 'max_rel_diff': 1e-6, 'top5_equal': True, **values}


@pytest.mark.parametrize(('row', 'well'), [
    (mode(), True), (mode(lost=1), False), (mode(max_rel_diff=math.nan), False),
    (mode(max_rel_diff=math.inf), False), (mode(top5_equal=False), False)])
def test_what_is_not_exact_fails(row: dict[str, object], well: bool) -> None:
    for part in ({'modes': {'shared': row}}, {'modes': {}, 'server_killed': row}):
        assert _all_well({'models': {'hed': part}}, Console(quiet=True)) == well


def test_differences_are_of_the_same_frames() -> None:
    phases = {'shared': {'frame': [0, 2, 3], 'latency_ms': [50.0, 60.0, 70.0]},
              'local': {'frame': [0, 1, 2, 3], 'latency_ms': [100.0, 7.0, 120.0, 140.0]}}
    assert compared(phases) == {'local': {'ratio': 0.5, 'low': 0.5, 'high': 0.5,
                                          'significant': True}}


@pytest.mark.slow
def test_a_demo_from_end_to_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The small network, a few frames: every mode is played, the server killed, all exact."""
    monkeypatch.setenv('INTRADP_CACHE', str(tmp_path / 'cache'))
    out = tmp_path / 'demo'
    assert main(['demo', '--models', 'mobilenet_v2', '--frames', '6', '--rate', '100',
                 '--out', str(out)]) == 0
    report = json.loads((out / 'report.json').read_text())
    part = report['models']['mobilenet_v2']
    assert set(part['modes']) == {'local', 'offload', 'cut', 'shared'}
    for row in part['modes'].values():
        assert set(row) >= KEYS and row['frames'] == 6 and row['lost'] == 0
        assert row['median_low_ms'] <= row['median_ms'] <= row['median_high_ms']
    assert part['modes']['offload']['shared'] == 6 and part['modes']['local']['shared'] == 0
    assert set(part['shared_against']) == {'local', 'offload', 'cut'}
    assert part['books'] == 1 and part['server_killed']['lost'] == 0
