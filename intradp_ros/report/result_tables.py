# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""Results as a table for people and as JSON for programs, from the same plain data."""
from __future__ import annotations

from collections.abc import Callable, Mapping
import dataclasses
import json
import math
from pathlib import Path
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.table import Table

from intradp_ros.core.atomic_write import write_atomically

_MISSING = '-'


def _kilobytes(count: float) -> str:
    return f'{count / 1e3:.1f}' if 0 < count < 1e5 else f'{count / 1e3:.0f}'


def _milliseconds(value: float) -> str:
    return f'{value:.1f}' if value < 100 else f'{value:.0f}'


# Key of a row, heading, format of the value.
COLUMNS: tuple[tuple[str, str, Callable[[Any], str]], ...] = (
    ('frames', 'frames', str),
    ('lost', 'lost', str),
    ('median_ms', 'median\nms', _milliseconds),
    ('p95_ms', 'p95\nms', _milliseconds),
    ('predicted_ms', 'predicted\nms', _milliseconds),
    ('bytes_up', 'up\nkB', _kilobytes),
    ('bytes_down', 'down\nkB', _kilobytes),
    ('energy_j', 'energy\nJ', lambda value: f'{value:.2f}'),
    ('max_rel_diff', 'max\n|diff|', lambda value: f'{value:.0e}'),
)


def _cell(row: Mapping[str, Any], key: str, show: Callable[[Any], str]) -> str:
    """Return a value as text; what is missing or not a number is a dash."""
    value = row.get(key)
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return _MISSING
    return show(value)


def mode_table(title: str, modes: Mapping[str, Mapping[str, Any]]) -> Table:
    """
    Return a table with a row for each mode, within 80 columns; the fastest is set in bold.

    :param modes: by mode, values by the keys of `COLUMNS`: milliseconds, bytes
        for each frame, joules for each frame, and the greatest difference to
        the unsplit model relative to its spread.  Columns that no mode has are
        left out.
    """
    columns = [column for column in COLUMNS if any(column[0] in row for row in modes.values())]
    table = Table(title=title, title_justify='left', box=SIMPLE_HEAD, pad_edge=False,
                  padding=0)
    table.add_column('mode', no_wrap=True)
    for _, heading, _ in columns:
        table.add_column(heading, justify='right', no_wrap=True)
    medians = {mode: row['median_ms'] for mode, row in modes.items()
               if row.get('median_ms') is not None}
    best = min(medians, key=lambda mode: medians[mode], default=None)
    for mode, row in modes.items():
        table.add_row(mode, *(_cell(row, key, show) for key, _, show in columns),
                      style='bold' if mode == best else None)
    return table


def _plain(value: Any) -> Any:
    """Return a value as JSON knows it; numbers that JSON lacks become null."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return _plain(dataclasses.asdict(value))
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    if hasattr(value, 'tolist'):  # arrays and scalars of NumPy, tensors
        return _plain(value.tolist())
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return str(value) if isinstance(value, Path) else value


def json_text(data: Any) -> str:
    """
    Return data as indented JSON.

    Dataclasses become objects, arrays lists, and NaN and infinities null.
    TypeError names what cannot be written.
    """
    return json.dumps(_plain(data), indent=2, allow_nan=False) + '\n'


def write_json(path: Path, data: Any) -> None:
    """Write what `json_text` returns; the file is complete, or else as it was."""
    write_atomically(path, json_text(data))
