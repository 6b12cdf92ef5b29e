# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""`intradp demo-training`: the result of one process, though a device is killed."""
from __future__ import annotations

import json

import pytest

from intradp_ros.cli.main import main

KEYS = {'rounds', 'samples', 'max_rel_diff', 'loss', 'loss_one_process', 'accuracy', 'systems',
        'killed', 'failed', 'parts', 'said'}


@pytest.mark.slow
def test_a_killed_device_changes_nothing(tmp_path):
    assert main(['demo-training', '--out', str(tmp_path)]) == 0
    report = json.loads((tmp_path / 'report.json').read_text())
    assert set(report) == KEYS and set(report['systems']['training']) == {
        'round_ms', 'predicted_ms', 'loss_diff', 'failed', 'plan'}
    systems = report['systems']
    assert systems['EDDL']['predicted_ms'] < systems['one device']['predicted_ms']
    assert not systems['torch DDP']['failed'] and systems['torch DDP']['round_ms'] > 96
    assert systems['training']['loss_diff'] < 1e-9 < systems['torch DDP']['loss_diff']
    assert report['max_rel_diff'] < 1e-10 and report['accuracy'] > 0.95
    assert report['rounds'] == 90 and report['samples'] == 90 * 96
    assert report['loss'] == pytest.approx(report['loss_one_process'], rel=1e-9)
    killed = report['killed']
    assert set(killed) == {'rounds_replayed', 'samples_lost', 'recovery_ms', 'heavy_ms'}
    assert set(killed['recovery_ms']) == {'detect', 'move', 'replay'}
    assert killed['samples_lost'] == 0 and killed['rounds_replayed'] <= 10


def test_rounds_that_are_not_there_are_refused(tmp_path, capsys):
    assert main(['demo-training', '--kill', '5', '--out', str(tmp_path)]) == 2
    assert '--kill must be 10 to 80' in capsys.readouterr().err
