# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""Tables for people and JSON for programs."""
from __future__ import annotations

from dataclasses import dataclass
import io
import json
import math
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console
from rich.table import Table

from intradp_ros.report.result_tables import mode_table, write_json

MODES = {
    'local': {'frames': 30, 'lost': 0, 'median_ms': 743.2, 'p95_ms': 761.0, 'predicted_ms': 740.1,
              'bytes_up': 0, 'bytes_down': 0, 'energy_j': 3.1, 'max_rel_diff': 0.0},
    'shared': {'frames': 30, 'lost': 0, 'median_ms': 95.16, 'p95_ms': 281.0,
               'predicted_ms': math.nan, 'bytes_up': 65280, 'bytes_down': 2087040,
               'energy_j': 1.1, 'max_rel_diff': 3.2e-6},
}


def shown(table: Table, width: int = 80) -> str:
    output = io.StringIO()
    Console(file=output, width=width).print(table)
    return output.getvalue()


def test_values_are_shown_with_units_on_a_narrow_terminal() -> None:
    lines = shown(mode_table('HED', MODES)).splitlines()
    rows = {line.split()[0]: line.split()[1:] for line in lines if line.strip()}
    assert rows['local'] == ['30', '0', '743', '761', '740', '0', '0', '3.10', '0e+00']
    assert rows['shared'] == ['30', '0', '95.2', '281', '-', '65.3', '2087', '1.10', '3e-06']


def test_a_table_of_slow_networks_fits_80_columns() -> None:
    slow = {'frames': 300, 'lost': 0, 'median_ms': 11328.4, 'p95_ms': 15280.0,
            'predicted_ms': 11320.0, 'bytes_up': 522240, 'bytes_down': 12350000, 'energy_j': 112.2,
            'max_rel_diff': 3.1e-7}
    lines = shown(mode_table('HED', {'server_killed': slow})).splitlines()
    assert lines[-2].split() == ['server_killed', '300', '0', '11328', '15280', '11320', '522',
                                 '12350', '112.20', '3e-07']


def test_the_fastest_is_bold() -> None:
    styles = [row.style for row in mode_table('HED', MODES).rows]
    assert styles == [None, 'bold']


def test_columns_nobody_has_are_left_out() -> None:
    table = mode_table('Killed', {'shared': {'frames': 30, 'lost': 0, 'max_rel_diff': None}})
    text = shown(table)
    assert 'median' not in text and 'lost' in text
    assert text.split()[-1] == '-'


@dataclass
class Version:
    torch: str


def test_json_is_plain(tmp_path: Path) -> None:
    path = tmp_path / 'out' / 'report.json'
    write_json(path, {'median': np.float32(0.5), 'modes': MODES, 'times': np.arange(3),
                      'versions': Version('2.13'), 'worst': math.inf, 'log': Path('/tmp/log')})
    read = json.loads(path.read_text())
    assert read['median'] == 0.5
    assert read['times'] == [0, 1, 2]
    assert read['versions'] == {'torch': '2.13'}
    assert read['worst'] is None and read['log'] == '/tmp/log'
    assert read['modes']['shared'] == {**MODES['shared'], 'predicted_ms': None}


def test_a_failed_write_leaves_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / 'report.json'
    write_json(path, {'frames': 30})
    with pytest.raises(TypeError, match='set'):
        write_json(path, {'frames': {30}})
    assert json.loads(path.read_text()) == {'frames': 30}
    assert list(tmp_path.iterdir()) == [path]
