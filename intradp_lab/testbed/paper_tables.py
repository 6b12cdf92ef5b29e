# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""The tables of the paper with what ran here, what it prints, and what its authors logged."""
from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
import json
from typing import Any

from intradp_lab.testbed.evaluation_results import Case, FLOAT32
from intradp_lab.testbed.package_data import package_data

TIME = ('mean_ms', 'std_ms', 'transmission_ms', 'transmission_std_ms', 'transmission_share')
ENERGY = ('power_w', 'power_std_w', 'energy_j', 'energy_std_j')
#: By number: whether it is of the classifiers, and its quantities.
TABLES = {'4': (False, TIME), '5': (False, ENERGY), '6': (True, TIME), '7': (True, ENERGY)}
_KEYS = ('workload', 'system', 'trace')
Known = Mapping[tuple[str, ...], Mapping[str, float]]


def tables(cases: Iterable[Case]) -> dict[str, list[dict[str, Any]]]:
    """Return rows by the number of the table, as `Results` has them."""
    source = json.loads(package_data('paper.json').read_text())
    logged, found = _by_key(source['logged']), list(cases)
    return {number: _rows([c for c in found if c.dense is not classifiers],
                          _by_key(source['printed'][number]), logged, quantities)
            for number, (classifiers, quantities) in TABLES.items()}


def _by_key(rows: Sequence[Mapping[str, Any]]) -> Known:
    return {tuple(row[key] for key in _KEYS): row for row in rows}


def _rows(cases: Sequence[Case], printed: Known, logged: Known, quantities: Sequence[str],
          ) -> list[dict[str, Any]]:
    rows = []
    for case in cases:
        for system, figures in case.systems.items():
            # The paper's systems send float32.
            key = (case.workload, system, case.trace) if case.inputs == FLOAT32 else ()
            rows.append({
                'workload': case.workload, 'title': case.title, 'system': system,
                'trace': case.trace, 'inputs': case.inputs,
                **{name: {'here': figures.get(name), 'printed': printed.get(key, {}).get(name),
                          'logged': logged.get(key, {}).get(name)} for name in quantities}})
    return rows
