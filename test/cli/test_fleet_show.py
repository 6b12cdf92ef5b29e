# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import json
from pathlib import Path

import pytest

from intradp_ros.cli.main import main

EXAMPLE = Path(__file__).parents[2] / 'config/fleet.yaml'


@pytest.mark.parametrize('suffix, start', [('png', b'\x89PNG'), ('svg', b'<?xml')])
def test_shows_a_fleet(suffix: str, start: bytes, tmp_path: Path,
                       capsys: pytest.CaptureFixture[str]) -> None:
    picture = tmp_path / f'fleet.{suffix}'
    assert main(['fleet', 'show', str(EXAMPLE), '--picture', str(picture)]) == 0
    shown = capsys.readouterr().out
    assert 'wifi/server.up' in shown and '80% of 50 Wh' in shown
    assert picture.read_bytes().startswith(start)


def test_json_says_the_same(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(['fleet', 'show', str(EXAMPLE), '--json']) == 0
    data = json.loads(capsys.readouterr().out)
    assert [d['name'] for d in data['devices']] == ['robot1', 'robot2', 'box', 'server']
    path = next(p for p in data['paths'] if (p['source'], p['target']) == ('robot1', 'robot2'))
    assert path == {'source': 'robot1', 'target': 'robot2', 'media': ['wifi', 'wifi'],
                    'bytes_per_second': 6.25e6, 'delay': 4e-3}


def test_errors_name_the_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / 'f.yaml'
    file.write_text('devices:\n  a: {memory: lots}\n')
    assert main(['fleet', 'show', str(file)]) != 0
    assert 'f.yaml:2: devices.a.memory: write an amount of memory' in capsys.readouterr().err
    file.write_text('devices: {a: {memory: 1 GB}}')
    assert main(['fleet', 'show', str(file), '--picture', str(tmp_path / 'x.pdf')]) != 0
    assert 'choose one of them' in capsys.readouterr().err
    file.write_text('devices: {a: {memory: 1 GB, profile: none.json}}')
    assert main(['fleet', 'show', str(file)]) == 2
    assert 'none.json' in capsys.readouterr().err
